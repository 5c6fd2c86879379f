# What Meshloom uses of scikit-learn, which has no annotations.
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from .kernels import Kernel

class GaussianProcessRegressor:
    def __init__(self, kernel: Kernel, *, normalize_y: bool, random_state: int) -> None: ...
    def fit(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> Self: ...
    def predict(
        self, X: NDArray[np.float64], return_std: Literal[True]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
