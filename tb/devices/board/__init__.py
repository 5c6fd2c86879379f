"""Chips on boards: the host's end of their link, and a board in a simulator to try it on."""
