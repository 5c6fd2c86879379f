"""The static scheduler: every tiling and loop order, the best by estimate and model."""
