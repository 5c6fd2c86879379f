"""Micro-op orchestration on a dataflow chip (C. Bai et al., "Klotski", ICCAD 2023)."""
