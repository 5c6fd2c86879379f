"""Programs whose operations are triggered by semaphores."""
