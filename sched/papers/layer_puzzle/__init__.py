"""Layer-Puzzle (Gao et al., DATE 2023): many networks at once, scheduled layer by layer while the chip runs."""
