# What Meshloom uses of Dask.
from . import config as config
