"""The chip's only door: registers and memories to the host over AXI, what a tile reports."""
