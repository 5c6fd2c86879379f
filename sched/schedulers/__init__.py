"""Schedulers, a folder each, and the registry by whose names they are found."""
