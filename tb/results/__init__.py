"""Rows of results, the folders they lie in, exit statuses."""
