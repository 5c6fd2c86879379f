"""What is shown: tables, progress, JUnit, JSON."""
