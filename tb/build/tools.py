"""Failures of what the project works with."""

from __future__ import annotations


class ToolError(RuntimeError):
    """What the project works with failed: a simulator, a compiler, the place for what they write."""
