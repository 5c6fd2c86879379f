"""What Meshloom needs of this machine, as data: what `meshloom doctor --json` prints."""

from __future__ import annotations

from pydantic import computed_field

from .record import Record


class Check(Record):
    """One thing that is looked at. `state`: ok, missing (nothing can be simulated without it), or note (all works, but
    slower or with less). `what`: its version, or what is the matter; `mend`: what to do, empty if there is nothing."""

    name: str
    state: str
    what: str
    mend: str = ""


class Health(Record):
    """All of it, in the order in which it is needed."""

    checks: tuple[Check, ...]

    @computed_field
    @property
    def ok(self) -> bool:
        """Whether nothing is missing."""
        return all(check.state != "missing" for check in self.checks)
