"""Data-triggered ahead-of-time routing (Dijkstra-Through-Time): the paper's examples and tables, and a scheduler that
has another one's schedule timed ahead."""

SCHEDULERS = {"dtt": "entry:DTT"}
