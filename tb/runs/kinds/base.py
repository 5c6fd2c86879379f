"""What runs and requests have in common that are one program with data of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from numpy.typing import NDArray

from meshloom.sched.lowering.programs import Planned
from meshloom.sched.workload.layers import WorkloadError

from .interface import Listener, PlanHolder

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig
    from meshloom.sched.schedulers.registry import Chosen

    from ...devices.interface import Job
    from ...inputs.sources import NetworkSource
    from ..outputs import OutputWords


class Subject(Protocol):
    """What a program computes: a layer, or layers in a row."""

    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=Subject)


@dataclass(frozen=True, eq=False)
class SingleRun(PlanHolder, ABC, Generic[S]):
    """A run of one program with data of its own. A kind adds `golden` and `row`."""

    subject: S
    planned: Planned
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    @abstractmethod
    def macs(self) -> int:
        """Multiply-accumulates."""

    @property
    def data(self) -> str:
        """What its input is, in words."""
        return "random bytes, seeded by the workload's name"

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Its input, by the names of tensors."""

    @abstractmethod
    def golden(self) -> Callable[[str], NDArray[Any]]:
        """What says of each output tensor, by its name, what it must be."""

    def outputs(self, chip: ChipConfig) -> Sequence[OutputWords]:
        from ..outputs import packed

        return packed(self.schedule, self.golden(), chip)

    def job(self, chip: ChipConfig) -> Job:
        from ..single import job_of

        return job_of(self, self.arrays(), chip)

    def settings(self) -> dict[str, Any]:
        from ..single import digest

        return {**self.origin, "input": self.data, "input_digest": digest(self.arrays())}


@dataclass(frozen=True)
class SingleRequest(ABC, Generic[S]):
    """A request that is one program with data of its own. A kind adds `scheduled_as`, `macs` and
    `expected`."""

    subject: S
    first_stage = "scheduling"
    activity = "scheduling"
    runs = 1

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    def reference(self) -> str:
        return self.name

    def check(self, chip: ChipConfig) -> None:
        """There are no files to look at."""

    @abstractmethod
    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> Any:
        """Its run, scheduled."""

    @abstractmethod
    def run_of(self, planned: Planned, origin: Mapping[str, Any]) -> Any:
        """Its run, as a file says."""

    def prepare(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> Sequence[Any]:
        return [self.plan(chip, scheduler, progress)]

    def feed_with(self, source: NetworkSource) -> Self:
        if source.inputs:
            raise WorkloadError(f"computes layer {self.name}, which has its own input; --input is for networks")
        return self

    def restored(self, planned: Planned, chip: ChipConfig, title: str, origin: Mapping[str, Any]) -> Sequence[Any]:
        return [self.run_of(planned, origin)]
