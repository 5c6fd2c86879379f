"""Files of other tools: mappings of layers that they print, and descriptions of chips that they read."""
