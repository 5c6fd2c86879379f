"""From plans to operations: fields of instructions, the operations of a core, of a layer, of a scheduler's task."""
