"""Ahead-of-time programs for a chip with a controller: every MOVE and computation gets its cycle and route.

`windows`     the resources that an operation occupies, and when, as a function of its fire time
`dram_train`  the same for words read from DRAM, burst by burst
`boot`        the start of a program: until the controller's first code has arrived, and what that occupies
`timetable`   plans a schedule: fire times, routes (found by `sched.routing`), arrivals
`orders`      the controller's program of a timetable
`prove`       proves that everything is in time, from the program's bytes alone
`static`      checks that do not depend on time: fields, tiles, waypoints
`check`       all checks, for a program with or without its schedule
"""
