"""What must not depend on the order of sets: figures of everything that searches or makes programs, as digests.

`python -m` this file prints them, so that a test can compare those of processes in which sets have other orders.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from random import Random
from typing import Any

from meshloom.hw.config import load
from meshloom.sched.ir.functional import Memories  # noqa: F401
