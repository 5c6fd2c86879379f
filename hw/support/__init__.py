"""What the reading of chips needs and hardware does not: near matches and messages of pydantic's errors."""
