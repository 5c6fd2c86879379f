"""What `meshloom init` writes: files that work as they stand; `TEMPLATE` becomes the name."""
