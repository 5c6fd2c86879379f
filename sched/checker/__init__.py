"""Whether a program can run: fields, tokens, races, channel dependences. Shares nothing with the lowering."""
