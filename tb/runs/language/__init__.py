"""Generating text on a chip: a step of the network, the state that goes from step to step, and the run as a whole."""
