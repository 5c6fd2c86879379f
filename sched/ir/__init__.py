"""The Schedule: operations with addresses, their hazards and dependences, what they compute."""
