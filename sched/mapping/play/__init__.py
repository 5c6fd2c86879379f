"""Estimates of cycles, and the order of operations of several cores in one list."""
