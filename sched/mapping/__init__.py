"""What schedulers share: tiling, placement, tensors in memory, staging, emission, interleaving, estimates."""
