"""The two gradients of a layer as one pair (J. Kim et al.): orders of their tiles, with partial sums that spill; and
the gradients of layers in a row."""

SCHEDULERS = {"gradient": "entry:GRADIENT", "chain": "chain_entry:CHAIN"}
