"""Loop nests that others have made: the mapping of a layer as tools of the field print it, and its schedule."""
