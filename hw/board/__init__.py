"""Boards: a chip with DRAM of block RAM or SDRAM and a host link over a UART."""
