"""What software may know of the chip: parameters, formats of instructions and packets, routes, times, registers."""
