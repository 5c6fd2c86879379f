"""What an integer model says about itself besides its nodes: steps, labels, picture, notes, as JSON in its metadata."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from meshloom.hw.spec.config import Exact

from ..graph import Graph, Picture
from .errors import OnnxError

#: Key of the JSON in the metadata of the model.
KEY = "meshloom"

_Step = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class PictureMetadata(Exact):
    """`workload.graph.Picture`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["RGB", "L"]
    mean: tuple[_Finite, ...]
    std: tuple[_Step, ...]

    @model_validator(mode="after")
    def _check(self) -> PictureMetadata:
        if not len(self.mean) == len(self.std) == (3 if self.mode == "RGB" else 1):
            raise ValueError(f"{len(self.mean)} means and {len(self.std)} deviations for mode {self.mode}")
        return self


class Metadata(Exact):
    """Everything of a `Graph` that nodes cannot say. `steps`: tensor name to the real value of 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    name: str
    real: bool
    steps: dict[str, _Step]
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    picture: PictureMetadata | None

    @classmethod
    def of(cls, graph: Graph) -> Metadata:
        """That of a network. Raises OnnxError when its picture or a step makes no sense."""
        picture = graph.picture
        try:
            return cls(
                name=graph.name,
                real=graph.real,
                steps={name: value.step for name, value in graph.values.items() if value.step},
                labels=graph.labels,
                notes=graph.notes,
                picture=picture and PictureMetadata(mode=picture.mode, mean=picture.mean, std=picture.std),
            )
        except ValidationError as error:
            raise OnnxError(f"network {graph.name}: {_explain(error)}") from error

    @classmethod
    def parse(cls, text: str, model: str) -> Metadata:
        """The inverse of `model_dump_json`. Raises OnnxError, naming the model and the place."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise OnnxError(f"{model}: metadata {KEY!r}: {_explain(error)}; write the model again") from error

    def graph_picture(self) -> Picture | None:
        """The picture in the network's form."""
        return self.picture and Picture(self.picture.mode, self.picture.mean, self.picture.std)


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "content"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"
