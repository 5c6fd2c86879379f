"""What `meshloom bench` measures: one module for each benchmark, found by name in `registry`."""
