"""Stages compiled once for some number of cores and placed anywhere: programs that come and go."""
