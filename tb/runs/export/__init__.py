"""A workload as files that run it without Meshloom: images, a C driver, a test bench."""
