"""The chip put together: tiles, its rows and columns of them, the parts a simulator compiles, and its Verilog."""
