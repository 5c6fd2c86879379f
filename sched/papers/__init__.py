"""Papers, a folder each: their schedulers, and what reproduces their tables. See `sched.schedulers.papers`."""
