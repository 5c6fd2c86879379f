"""Micro-op orchestration on a dataflow chip (C. Bai et al., "Klotski", ICCAD 2023)."""

SCHEDULERS = {"klotski": "entry:KLOTSKI", "atomic": "entry:ATOMIC", "zigzag": "entry:ZIGZAG"}
