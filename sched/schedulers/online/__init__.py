"""Schedulers that decide while the chip runs: what they are shown, the loop that serves, models of it."""
