"""Serving: several programs on one chip at once, launched while it runs."""
