# What Meshloom uses of threadpoolctl, which has no annotations.
from contextlib import AbstractContextManager

def threadpool_limits(limits: int) -> AbstractContextManager[object]: ...
