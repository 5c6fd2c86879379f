"""Formal proofs of the network on chip (docs/proofs.md): `run(name)` for each name in `PROOFS`."""

from .catalogue import PROOFS, Proof, Refutation, Result, run
from .engine import ProveError

__all__ = ["PROOFS", "Proof", "ProveError", "Refutation", "Result", "run"]
