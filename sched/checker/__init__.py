"""Whether a program can run: fields, tokens, races, channel dependences. Shares no code with the lowering."""
