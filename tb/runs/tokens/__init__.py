"""Serving texts on a chip: steps of several texts at once, and the run as a whole."""
