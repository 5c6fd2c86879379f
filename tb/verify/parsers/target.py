"""One parser under Atheris: `python -m meshloom.tb.verify.parsers.target NAME SEEDS ARGUMENTS`.

Atheris has to see the code before anything else imports it. ARGUMENTS are libFuzzer's, the folder of the corpus among
them. SEEDS: a folder that is filled with the parser's good files.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

#: Whose branches are counted: ours, and those of the libraries in Python that read the text.
COUNTED = ("meshloom", "tomllib", "yaml", "configparser", "csv")


def main(arguments: list[str]) -> None:
    """Runs one parser with inputs that reach new branches, until libFuzzer ends the process."""
    import atheris  # pyright: ignore[reportMissingModuleSource]  (in an environment of its own)

    engine: Any = atheris
    name, seeds, *rest = arguments
    with tempfile.TemporaryDirectory() as folder:
        with engine.instrument_imports(include=list(COUNTED)):
            from . import readers

            parser = readers.PARSERS[name]
            path = parser.file(Path(folder))
            for number, content in enumerate(parser.seeds()):
                (Path(seeds) / f"{number}").write_bytes(content)
                path.write_bytes(content)
                readers.problem(parser, path)  # imports what is imported late

        def one(content: bytes) -> None:
            path.write_bytes(content)
            readers.problem(parser, path)

        engine.Setup([sys.argv[0], *rest, seeds], one)
        engine.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
