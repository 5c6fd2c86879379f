"""Dijkstra-Through-Time: transfers planned ahead (V. Tableau Roche, P. Murugappa Velayuthan, Nokia Bell Labs)."""

#: Modules with a STUDY.
STUDIES = ("ahead", "dtt_holders", "dtt_optimum", "dtt_paper", "dtt_routing")
