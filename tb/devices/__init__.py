"""What programs run on, and what is read from it."""
