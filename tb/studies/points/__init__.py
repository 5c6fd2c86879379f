"""Kinds of points that several studies measure."""
