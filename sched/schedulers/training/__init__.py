"""A training step as two programs: forwards, and both gradients of every layer, the examples shared by all cores."""
