"""Layer-Puzzle: many networks at once (C. Gao et al., DATE 2023)."""

#: Modules with a STUDY.
STUDIES = ("layer_puzzle", "layer_latency", "online_ablation", "puzzle_assumptions")
