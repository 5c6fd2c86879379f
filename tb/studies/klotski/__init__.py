"""Klotski: networks in micro-ops (C. Bai et al., ICCAD 2023)."""

#: Modules with a STUDY.
STUDIES = ("klotski", "klotski_solvers", "klotski_partition")
