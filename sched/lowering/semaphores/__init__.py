"""Programs whose operations wait for semaphores."""
