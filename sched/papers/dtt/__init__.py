"""The examples and tables of the paper on data-triggered ahead-of-time routing (Dijkstra-Through-Time)."""
