# The wheel carries the simulator; Meshloom asks it for nothing but its place.
