"""Interleaved gradient order: training steps (J. Kim et al., MICRO 2023)."""

#: Modules with a STUDY.
STUDIES = ("gradient", "gradient_chain", "training")
