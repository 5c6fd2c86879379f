"""The chip itself: its timing, its size, and what options of it are worth."""

#: Modules with a STUDY.
STUDIES = (
    "whole_packets",
    "gemm",
    "area",
    "vector",
    "noc",
    "channel_scales",
    "coverage",
    "upsets",
    "fpga",
    "dram_banks",
    "multicast",
)
