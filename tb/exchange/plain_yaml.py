"""YAML of other tools, read safely: a node with a tag is a table whose `kind` is that tag, and nothing is executed."""

from __future__ import annotations

from pathlib import Path

from .interface import ImportFileError, text_of


def read_yaml(path: Path, what: str) -> object:
    """The values of a file. `what`: what the file must be. Raises ImportFileError, OSError."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Tags are kinds of tables."""

        def construct_tagged(self, suffix: str, node: yaml.Node) -> dict[object, object]:
            if not isinstance(node, yaml.MappingNode):
                raise yaml.constructor.ConstructorError(None, None, f"!{suffix} has no fields", node.start_mark)
            return {"kind": suffix, **self.construct_mapping(node, deep=True)}

    Loader.yaml_multi_constructors = {**Loader.yaml_multi_constructors, "!": Loader.construct_tagged}
    try:
        return yaml.load(text_of(path), Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, ImportFileError):
            raise
        reason = " ".join(str(error).split())
        raise ImportFileError(f"{path}: is not YAML: {reason}; it must be {what}: was it cut?") from error
