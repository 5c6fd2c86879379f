"""Ahead-of-time programs on the RTL, many of them: `python -m meshloom.tb.ahead.soak`, a part of `make soak`."""
