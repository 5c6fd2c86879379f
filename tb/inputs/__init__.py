"""Workloads with their inputs: synthetic tensors, pictures, models of users."""
