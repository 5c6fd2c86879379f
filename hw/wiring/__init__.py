"""What every unit of the chip shares: port signatures, clocks and resets, AXI, counters of links, rights to write."""
