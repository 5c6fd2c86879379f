from typing import Self

import numpy as np
from numpy.typing import NDArray

class RandomForestRegressor:
    def __init__(
        self, *, n_estimators: int, min_samples_leaf: int, random_state: int, n_jobs: int
    ) -> None: ...
    def fit(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> Self: ...
    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]: ...
