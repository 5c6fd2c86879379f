"""Where tensors lie in DRAM and SPM, and in which chunks they travel."""
