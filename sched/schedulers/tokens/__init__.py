"""Serving tokens: what a step of a language model reads next, decided each time that one has ended."""
