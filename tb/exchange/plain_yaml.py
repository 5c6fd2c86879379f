"""YAML of other tools, read safely: a node with a tag is a table whose `kind` is that tag, and nothing is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .interface import ImportFileError, text_of

#: Levels of a file, and values in it, what is named twice counted twice: no tool writes more, and neither parser nor
#: models bear any number.
MOST_LEVELS, MOST_VALUES = 100, 1_000_000


def read_yaml(path: Path, what: str) -> object:
    """The values of a file. `what`: what the file must be. Raises ImportFileError, OSError."""
    import yaml

    text, parser = text_of(path), getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(parser):
        """Tags are kinds of tables."""

        def construct_tagged(self, suffix: str, node: yaml.Node) -> dict[object, object]:
            if not isinstance(node, yaml.MappingNode):
                raise yaml.constructor.ConstructorError(None, None, f"!{suffix} has no fields", node.start_mark)
            return {"kind": suffix, **self.construct_mapping(node, deep=True)}

    Loader.yaml_multi_constructors = {**Loader.yaml_multi_constructors, "!": Loader.construct_tagged}
    try:
        _bounded(text, parser)
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ImportFileError(f"{path}: is not YAML: {reason}; it must be {what}: was it cut?") from error


def _bounded(text: str, parser: Any) -> None:
    """Raises ValueError for more than `MOST_LEVELS` or `MOST_VALUES`, YAMLError for what is none."""
    import yaml

    values, anchors = [0], dict[str, int]()
    names: list[str | None] = []
    for event in yaml.parse(text, parser):
        if isinstance(event, yaml.CollectionStartEvent):
            if len(values) > MOST_LEVELS:
                raise ValueError(f"it is nested too deeply, more than {MOST_LEVELS} levels")
            values.append(1)
            names.append(event.anchor)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            count, name = values.pop(), names.pop()
        elif isinstance(event, yaml.AliasEvent):
            count, name = anchors.get(event.anchor, 1), None
        elif isinstance(event, yaml.ScalarEvent):
            count, name = 1, event.anchor
        else:
            continue
        if name is not None:
            anchors[name] = count
        values[-1] += count
        if values[-1] > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values, what it names again counted again")
