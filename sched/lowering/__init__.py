"""From a Schedule to a program: triggered by semaphores, or timed ahead of time."""
