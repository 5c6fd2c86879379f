"""`python -m meshloom` is the command line, where its script is not on the path."""

from __future__ import annotations

from meshloom.tb.cli.main import app

if __name__ == "__main__":
    app(prog_name="meshloom")
