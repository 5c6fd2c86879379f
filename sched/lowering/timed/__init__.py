"""Ahead-of-time programs for a chip with a controller: every MOVE and computation of a schedule gets its cycle and way.

`windows`     what an operation occupies, and when, as a function of the cycle in which it fires
`dram_train`  the same of words that come out of DRAM, burst by burst
`boot`        how a program begins: until the controller's first code is there, and what that keeps busy
`timetable`   plans a schedule: fire times, ways (found by `sched.routing`), arrivals
`orders`      the controller's program of a timetable
`prove`       proves that everything is in time, from the program's bytes alone
`static`      what needs no notion of time: fields, tiles, way-points
`check`       all of it, for a program with or without its schedule
"""
