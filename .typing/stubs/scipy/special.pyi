from typing import Any

from numpy.typing import NDArray

def erf(x: NDArray[Any]) -> NDArray[Any]: ...
