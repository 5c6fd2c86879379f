"""What any part of the scheduler package may use."""
