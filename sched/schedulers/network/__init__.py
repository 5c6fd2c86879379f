"""Whole networks on the chip: every layer's operations in one schedule, activations in the scratchpad."""
