"""Differential fuzz: random programs on random chips, of which the RTL, the timeline model, the functional executor and
the checker have to say the same."""
