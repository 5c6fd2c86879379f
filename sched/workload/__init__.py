"""Workloads: layers with shapes and data (`layers`), how tensors lie in memory (`layout`), and names (`catalog`)."""
