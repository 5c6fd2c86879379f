"""Scenarios served on the RTL and in the model: networks compiled, sessions, and what they have left."""
