from ..engine.study import Study
from .assumed import SEEDS, AssumedPoint, Setting, poisson, with_networks
from .replanned import NAME as REPLANNED
from .views import SCHEDULERS
STUDY = Study("puzzle_assumptions","t","q","a","b",lambda f: [], (), paper="layer_puzzle")
