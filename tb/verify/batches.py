"""Batches of a campaign, in processes of their own, that goes on where it was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import Any, Protocol, TypeVar

from .record import SoakRecord


class CampaignBatch(Protocol):
    """A part of a campaign; its result is stored by its name."""

    @property
    def name(self) -> str: ...


class CampaignResult(Protocol):
    """What came of a batch: `findings`, each of which has `words`."""

    @property
    def findings(self) -> tuple[Any, ...]: ...


BatchT = TypeVar("BatchT", bound=CampaignBatch)
ResultT = TypeVar("ResultT", bound=CampaignResult)


def run_batches(
    batches: Sequence[BatchT],
    run: Callable[[BatchT], ResultT],
    record: SoakRecord[ResultT],
    jobs: int,
    on_progress: Callable[[str], None],
    prepare: Callable[[BatchT], object] = lambda batch: None,
    words: Callable[[ResultT], str] = lambda result: "",
) -> list[ResultT]:
    """Runs those that `record` does not have, `jobs` at a time; returns what came of those with findings, which count
    as not done. `prepare` is called before, in this process, so that no two workers wait for the same thing. `words`:
    what the line of a finished batch says of it. Raises what `run` and `prepare` do."""
    left = [batch for batch in batches if batch.name not in record.done]
    if len(left) < len(batches):
        on_progress(f"continuing: {len(batches) - len(left)} of {len(batches)} batches are done")
    failed: list[ResultT] = []
    with ProcessPoolExecutor(jobs) as pool:
        futures: dict[Future[ResultT], BatchT] = {}
        try:
            for batch in left:
                prepare(batch)
                futures[pool.submit(run, batch)] = batch
            for number, future in enumerate(as_completed(futures), 1):
                batch, result = futures[future], future.result()
                if result.findings:
                    failed.append(result)
                    on_progress(f"FAILED {batch.name}: {result.findings[0].words}")
                else:
                    record.add(batch.name, result)
                more = words(result)
                on_progress(f"[{number}/{len(left)}] {batch.name}{f': {more}' if more else ''}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed
