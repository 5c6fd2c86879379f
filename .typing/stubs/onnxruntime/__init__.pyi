# What Meshloom uses of ONNX Runtime, whose own annotations leave most parameters open.
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

class NodeArg:
    name: str
    type: str
    shape: list[int | str | None]

class SparseTensor: ...

class SessionOptions:
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int
    def add_session_config_entry(self, key: str, value: str) -> None: ...

class InferenceSession:
    def __init__(
        self,
        path_or_bytes: str | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str] | None = None,
        *,
        disabled_optimizers: Sequence[str] | None = None,
        enable_fallback: bool = True,
    ) -> None: ...
    def get_inputs(self) -> Sequence[NodeArg]: ...
    def get_outputs(self) -> Sequence[NodeArg]: ...
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[Any]]
    ) -> Sequence[NDArray[Any] | SparseTensor | list[Any] | dict[Any, Any]]: ...
