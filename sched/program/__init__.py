"""Programs: instructions, images, routes, the disassembler."""
