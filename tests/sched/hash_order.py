"""What must not depend on the order of sets: figures of everything that searches or makes programs, as digests.

`python -m` this file prints them, so that a test can compare those of processes in which sets have other orders.
"""

from __future__ import annotations

from meshloom.sched.ir.functional import Memories  # noqa: F401
