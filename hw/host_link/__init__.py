"""The chip's only interface to the host: registers and memories over AXI, and the reports of tiles."""
