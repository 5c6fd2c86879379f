"""Runs against the golden model and the timeline: bytes, records, causes."""
