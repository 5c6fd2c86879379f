"""One plane of the network by itself under traffic: simulators, soak, load curves, area."""
