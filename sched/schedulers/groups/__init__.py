"""Fused groups that others have made: layers of which each tile is passed on from core to core, and their schedule."""
