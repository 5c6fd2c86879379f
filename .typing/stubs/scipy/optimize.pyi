from typing import Any

from numpy.typing import NDArray

from .sparse import csr_array

class Bounds:
    def __init__(self, lb: NDArray[Any], ub: NDArray[Any]) -> None: ...

class LinearConstraint:
    def __init__(self, A: csr_array, lb: NDArray[Any], ub: NDArray[Any]) -> None: ...

class OptimizeResult:
    x: NDArray[Any] | None
    fun: float
    status: int
    message: str
    mip_dual_bound: float | None
    mip_node_count: int | None

def milp(
    c: NDArray[Any],
    *,
    integrality: NDArray[Any],
    bounds: Bounds,
    constraints: LinearConstraint,
    options: dict[str, float],
) -> OptimizeResult: ...
