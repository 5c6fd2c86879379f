"""Ahead-of-time programs on the RTL, many of them: `python -m meshloom.tb.verify.ahead_soak`, a part of `make soak`."""
