"""From a study's description to its page: points are measured by workers, rows are kept as text, tables are printed."""
