"""Schedulers in the loop: they decide while the chip computes."""
