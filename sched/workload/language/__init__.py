"""Small language models: a file, its float reference, its integers, and the networks of a step."""
