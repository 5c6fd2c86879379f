"""A layer as tiles: the problem, candidates, slots of the core's memories, steps of a core."""
