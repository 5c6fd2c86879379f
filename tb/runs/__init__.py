"""From workloads to rows: schedules, devices and comparisons in order, on several processes."""
