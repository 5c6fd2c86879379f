"""Meshloom as a Python library: what `import meshloom` offers. It calls what the command line calls."""
