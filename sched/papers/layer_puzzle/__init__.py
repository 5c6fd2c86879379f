"""Layer-Puzzle (Gao et al., DATE 2023): many networks at once, scheduled layer by layer while the chip runs."""

ONLINE_SCHEDULERS = {
    "prema": "entry:PREMA",
    "planaria": "entry:PLANARIA",
    "veltair": "entry:VELTAIR",
    "layer_puzzle": "entry:LAYER_PUZZLE",
}
