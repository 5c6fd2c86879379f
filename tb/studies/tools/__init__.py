"""Meshloom as a tool: how fast it is, and other people's simulators beside it."""

#: Modules with a STUDY.
STUDIES = ("scalesim", "speed", "builds", "first_run", "memory", "sweep", "referee", "arena")
