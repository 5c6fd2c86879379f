"""The Schedule: operations with addresses, their hazards and dependences, and their results."""
