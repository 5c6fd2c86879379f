"""JSON, TOML and CSV from elsewhere. What is wrong with a text is a ValueError with a short reason, whatever the parser
makes of it: nesting without end and numbers of thousands of digits, too."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

from .text import shortened

#: Characters of a parser's complaint.
_REASON = 200


def _reason(error: ValueError) -> str:
    text = str(error)
    return "a number has thousands of digits" if text.startswith("Exceeds the limit") else shortened(text, _REASON)


def parse_json(text: str) -> Any:
    """What JSON says. Raises ValueError: what is wrong, and where."""
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {_reason(error)}") from error


def parse_csv(text: str, between: str = ",") -> list[list[str]]:
    """Rows of cells without the blanks around them. Raises ValueError: what is wrong."""
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), delimiter=between)]
    except csv.Error as error:
        raise ValueError(f"is no CSV: {_reason(ValueError(str(error)))}") from error


def read_toml(path: Path, error_type: type[ValueError]) -> dict[str, Any]:
    """What a file in TOML says. Raises `error_type` with the file: it cannot be read, is no text, or is malformed."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise error_type(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise error_type(f"{path}: is not UTF-8 text") from error
    except ValueError as error:
        raise error_type(f"{path}: {error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """What TOML says. Raises ValueError: what is wrong, and where."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("malformed TOML: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"malformed TOML: {_reason(error)}") from error
