"""From a chip to a bitstream: boards, synthesis, placing and routing, what comes out."""
