"""Training a network on a chip: the host's part, the chip's part, and what is kept between steps."""
