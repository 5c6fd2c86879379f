"""Flexer's out-of-order scheduling of tiled layers, its static baseline, and a hybrid that beats both."""

SCHEDULERS = {"flexer": "entry:FLEXER", "paper_static": "entry:PAPER_STATIC", "hybrid": "entry:HYBRID"}
