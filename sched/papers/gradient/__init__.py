"""The two gradients of a layer as one pair: orders of their tiles, with partial sums that spill."""
