"""Sweeps: chips x schedulers x workloads, on all CPUs or on a cluster, into one table."""
