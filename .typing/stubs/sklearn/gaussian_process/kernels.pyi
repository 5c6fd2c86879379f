# What Meshloom uses of scikit-learn, which has no annotations.
import numpy as np
from numpy.typing import NDArray

class Kernel:
    def __add__(self, other: Kernel) -> Kernel: ...
    def __mul__(self, other: Kernel) -> Kernel: ...

class ConstantKernel(Kernel):
    def __init__(self, constant_value: float, constant_value_bounds: tuple[float, float]) -> None: ...

class WhiteKernel(Kernel):
    def __init__(self, noise_level: float, noise_level_bounds: tuple[float, float]) -> None: ...

class Matern(Kernel):
    def __init__(
        self, length_scale: NDArray[np.float64], length_scale_bounds: tuple[float, float], nu: float
    ) -> None: ...
