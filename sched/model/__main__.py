"""`python -m meshloom.sched.model` compiles the timeline model unless it has been compiled already."""

from __future__ import annotations

from .native import main

if __name__ == "__main__":
    main()
