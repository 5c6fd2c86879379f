"""YAML of other tools, read safely: a node with a tag is a table whose `kind` is that tag, and nothing is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .interface import ImportFileError, text_of

#: Levels of a file, and values in it (what is named twice counts twice). No tool writes more. A parser crashes at some
#: depth, and a model takes for ever at some number.
MOST_LEVELS, MOST_VALUES = 100, 1_000_000


def read_yaml(path: Path, what: str) -> object:
    """The values of a file. `what`: what the file must be. Raises ImportFileError, OSError."""
    import yaml

    library: Any = yaml
    text, parser = text_of(path), getattr(library, "CSafeLoader", library.SafeLoader)
    loader: Any = type("Loader", (parser,), {})
    loader.add_multi_constructor("!", _tagged)
    try:
        _bounded(text, parser)
        return library.load(text, loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if "{{" in text or "{%" in text:
            raise ImportFileError(
                f"{path}: is a template of YAML, with {{{{ or {{% in it; give the file that the tool makes of it"
            ) from error
        reason = " ".join(str(error).split())
        raise ImportFileError(f"{path}: is not YAML: {reason}; it must be {what}: was it cut?") from error


def _tagged(loader: Any, suffix: str, node: Any) -> dict[object, object]:
    """A table whose kind is a tag."""
    from yaml import MappingNode
    from yaml.constructor import ConstructorError

    if not isinstance(node, MappingNode):
        raise ConstructorError(None, None, f"!{suffix} has no fields", node.start_mark)
    return {"kind": suffix, **loader.construct_mapping(node, deep=True)}


def _bounded(text: str, parser: Any) -> None:
    """Raises ValueError for more than `MOST_LEVELS` or `MOST_VALUES`, YAMLError for what is none."""
    import yaml

    library: Any = yaml
    values, anchors = [0], dict[str, int]()
    names: list[str | None] = []
    for event in library.parse(text, parser):
        if isinstance(event, library.CollectionStartEvent):
            if len(values) > MOST_LEVELS:
                raise ValueError(f"it is nested too deeply, more than {MOST_LEVELS} levels")
            values.append(1)
            names.append(event.anchor)
            continue
        if isinstance(event, library.CollectionEndEvent):
            count, name = values.pop(), names.pop()
        elif isinstance(event, library.AliasEvent):
            count, name = anchors.get(event.anchor, 1), None
        elif isinstance(event, library.ScalarEvent):
            count, name = 1, event.anchor
        else:
            continue
        if name is not None:
            anchors[name] = count
        values[-1] += count
        if values[-1] > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values, what it names again counted again")
