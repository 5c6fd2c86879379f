"""Flexer: out-of-order schedules against static ones (H. Min, J. Kwon, B. Egger, CGO 2023)."""

#: Modules with a STUDY.
STUDIES = ("flexer", "flexer_rtl", "flexer_networks", "flexer_assumptions", "flexer_policies", "flexer_optimum")
