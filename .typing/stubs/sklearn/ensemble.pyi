from typing import Self

import numpy as np
from numpy.typing import NDArray

class RandomForestRegressor:
    def __init__(
        self,
        *,
        n_estimators: int,
        max_depth: int,
        min_samples_leaf: int,
        max_features: float,
        random_state: int,
        n_jobs: int,
    ) -> None: ...
    def fit(self, X: NDArray[np.float32], y: NDArray[np.float32]) -> Self: ...
    def predict(self, X: NDArray[np.float32]) -> NDArray[np.float64]: ...
