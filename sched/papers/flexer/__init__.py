"""Flexer's out-of-order scheduling of tiled layers, its static baseline, and a hybrid that beats both."""
