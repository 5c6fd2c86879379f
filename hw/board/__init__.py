"""Boards: a chip with DRAM of block RAM and a host link over a UART."""
