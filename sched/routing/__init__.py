"""Dijkstra Through Time: ahead-of-time placing and routing, where data move when nobody asks for them.

After "Dijkstra-Through-Time: Ahead of time hardware scheduling method for deterministic workloads" (V. Tableau Roche
and P. Murugappa Velayuthan). Two halves share the idea and no code:

* the paper's objects, for any hardware and every rule of it (`hardware`, `placing`, `routing`, `schedule`,
  `reduction`, `examples`): small networks, exact, with its case studies;
* pages on a mesh: a `program` on a `mesh` becomes a `plan` (`planner`; compiled: `tables`, `levels`, `search`, `fetch`,
  `tasks`), for whole `layers`. `check` proves a plan independently, `yardstick` is the plain formulation of the same
  search, `waypoints` compresses a plan, `pulled` plays the same program on demand.

Cycles are those of the network. Tie rules are written where the searches are (`routing`, `search`); none depends on
the order of a heap.
"""
