"""The scheduler of chips with a controller: another's schedule, timed ahead."""
