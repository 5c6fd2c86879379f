"""Simulators of chips, built once and kept."""
