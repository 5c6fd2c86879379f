"""Workers: processes of this machine, or a Dask cluster; jobs go to them, and what they return comes back.

A job that loses its worker goes to another one. One that has lost several is taken apart, so that the task that kills
them is known: it fails, and the others are done.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from meshloom.sched.support.files import WriteError

from ...build.tools import ToolError
from ..failures import Failure
from .evaluate import OtherSourcesError

if TYPE_CHECKING:
    from distributed import Client, Future

#: Workers that a job may lose before it is taken apart.
LOSSES = 2
#: Jobs that wait for each worker, beside the one that it does: it never waits for the client.
AHEAD = 2
#: Seconds in which a cluster must show a worker.
PATIENCE = 60


D = TypeVar("D", covariant=True)


class ClusterError(ToolError):
    """A cluster that cannot be reached, or whose workers cannot do what they are asked."""


class Job(Protocol[D]):
    """What a worker does: some tasks, and what becomes of them."""

    def model_dump_json(self) -> str:
        """All that the worker needs."""
        ...

    @staticmethod
    def perform(text: str) -> str:
        """What the worker calls with that; what it returns comes back."""
        ...

    def apart(self) -> Sequence[Self]:
        """Jobs of a single task each."""
        ...

    def outcome(self, text: str) -> D:
        """What came back, read."""
        ...

    def lost(self, why: Failure) -> D:
        """What comes of it if it kills its workers."""
        ...


_SETTINGS: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": LOSSES - 1,
    "distributed.scheduler.worker-ttl": None,  # compiled code may hold Python for minutes: no sign that it is dead
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.admin.tick.limit": "1 hour",
    # nobody looks at what these watch, a hundred times a second
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.scheduler.http.routes": [],  # nobody needs to be told anything by HTTP
    "distributed.worker.http.routes": [],
}
#: Where processes of this machine have their HTTP servers, which serve nothing: for nobody else, at any free port.
_NOWHERE = "127.0.0.1:0"
#: What workers of this machine need: one process imports it, of which they are copies, also those that replace others.
_IMPORTED = ("distributed", "meshloom.tb.runs.sweeps.evaluate", "meshloom.sched.schedulers.loop_order.kept")
#: And those that run something on the RTL; to import what describes a chip's gateware takes as long as some points.
ON_RTL = ("meshloom.tb.devices.simulated", "meshloom.tb.runs.single", "meshloom.hw.control.trace")


def begin(more: Sequence[str] = ()) -> None:
    """Starts the process that workers of this machine are copied from, if it does not run yet; it imports meanwhile
    what all workers need, and `more` modules."""
    from dask import config
    from distributed.utils import get_mp_context

    with config.set(_SETTINGS):
        get_mp_context()  # sets a list of its own, once
    multiprocessing.get_context("forkserver").set_forkserver_preload([*_IMPORTED, *more])
    forkserver.ensure_running()


@contextmanager
def opened(jobs: int, address: str | None) -> Generator[Client]:
    """A client of `jobs` worker processes on this machine, or of the cluster whose scheduler has that address.

    What goes to processes of this machine is encrypted and signed with keys that exist as long as they do, so nobody
    else who is logged in can send them anything. Raises ClusterError.
    """
    from dask import config
    from distributed import Client, LocalCluster
    from distributed.security import Security

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with config.set(_SETTINGS):
        if address is None:
            begin()
            keys = Security.temporary()
            with ExitStack() as stack:
                try:
                    cluster = LocalCluster(
                        n_workers=jobs,
                        threads_per_worker=1,
                        processes=True,
                        security=keys,
                        protocol="tls://",
                        dashboard_address=_NOWHERE,
                        worker_dashboard_address=_NOWHERE,
                        scheduler_kwargs={"dashboard": False},
                        memory_limit=0,
                        silence_logs=logging.CRITICAL,
                    )
                    client = Client(stack.enter_context(cluster), security=keys)
                except RuntimeError as error:
                    raise ClusterError(
                        f"worker processes do not start: {error} A Python script that sweeps must be a file, with the "
                        'sweep below `if __name__ == "__main__":`, since they begin by importing it'
                    ) from error
                yield stack.enter_context(client)
            return
        try:
            client = Client(address, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            raise ClusterError(f"cluster {address}: cannot be reached: {error}") from error
        with client:
            try:
                client.wait_for_workers(1, timeout=PATIENCE)
            except TimeoutError:
                raise ClusterError(f"cluster {address}: has no worker after {PATIENCE} seconds; start some") from None
            yield client


def workers(client: Client) -> int:
    """Jobs that run at the same time."""
    return max(1, sum(client.nthreads().values()))


def run(client: Client, jobs: Sequence[Job[D]], on_done: Callable[[D], None]) -> None:
    """Sends jobs, a few ahead of the workers, and hands over what each has become as soon as it is there. Raises
    ClusterError if workers cannot do it at all; WriteError."""
    from distributed import as_completed

    waiting = list(reversed(jobs))
    sent: dict[str, Job[D]] = {}

    going = as_completed()

    def send(job: Job[D]) -> None:
        future = client.submit(job.perform, job.model_dump_json(), pure=False)
        sent[future.key] = job
        going.add(future)

    def send_ahead() -> None:
        while waiting and len(sent) < (1 + AHEAD) * workers(client):
            send(waiting.pop())

    send_ahead()
    for future in going:
        job = sent.pop(future.key)
        for left in _finished(future, job, on_done):
            send(left)
        send_ahead()


J = TypeVar("J", bound=Job[Any])


def _finished(future: Future, job: J, on_done: Callable[[Any], None]) -> Sequence[J]:
    """Hands over what a job has become; returns jobs to send instead of one that has lost its workers."""
    from distributed.scheduler import KilledWorker

    error = future.exception()
    if error is None:
        on_done(job.outcome(future.result()))
        return []
    if isinstance(error, KilledWorker):
        if len(parts := job.apart()) > 1:
            return parts
        why = Failure("KilledWorker", "scheduling", f"{LOSSES} workers died of it; is there enough memory?")
        on_done(job.lost(why))
        return []
    if isinstance(error, WriteError):
        raise error
    if isinstance(error, OtherSourcesError):
        raise ClusterError(str(error)) from error
    raise ClusterError(f"workers cannot do a batch: {type(error).__name__}: {error}") from error
