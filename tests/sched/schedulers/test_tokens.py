"""Token schedulers: the order of each, limits that are met, batches that cannot be, and what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent

import pytest

from meshloom.sched.schedulers.failures import SchedulerError
from meshloom.sched.schedulers.online.interface import ServingError
from meshloom.sched.schedulers.tokens.drive import Reads, ServedText, TokenDrive, TokenStep
from meshloom.sched.schedulers.tokens.interface import Batch, Text, TextView
from meshloom.sched.schedulers.tokens.metrics import measure, spread
from meshloom.sched.schedulers.tokens.registry import TOKENS, token_scheduler
from meshloom.sched.support.limits import guard_of, guarded
from meshloom.sched.workload.texts import NO_LIMITS, TextLimits, TextRequest

SHIPPED = ("chunked", "decode_first", "fcfs", "lookahead", "prefill_first")


@dataclass
class Executor:
    """A step takes 100 cycles and 20 for each text; a chunk of four tokens 30 more."""

    lengths: dict[int, int] = field(default_factory=dict[int, int])
    released: list[int] = field(default_factory=list[int])

    def predicted(self, news: tuple[int, ...]) -> int:
        return 100 + 20 * len(news) + 30 * (max(news) > 1)

    def run(self, news: tuple[int, ...], reads: Sequence[Reads]) -> int:
        for places, read in zip(news, reads, strict=True):
            assert read.count == places or (not read.decodes and read.text not in self.lengths)
            self.lengths[read.text] = self.lengths.get(read.text, 0) + read.count
        return self.predicted(news)

    def release(self, text: int) -> None:
        self.released.append(text)


@dataclass(frozen=True)
class Always:
    """Always the same batch."""

    batch: Batch
    name: str = "mine"

    def decide(self, view: TextView) -> Batch:
        return self.batch


def requests(*texts: tuple[int, int, int], limits: TextLimits = NO_LIMITS) -> list[TextRequest]:
    return [TextRequest(*text, limits) for text in texts]


def served(
    name: str, texts: list[TextRequest], seats: int = 4, wait: int = 0
) -> tuple[tuple[ServedText, ...], list[TokenStep]]:
    executor = Executor()
    drive = TokenDrive(executor, token_scheduler(name), seats, 4, wait)
    result = drive.run(texts)
    assert executor.lengths == {number: one.prompt + one.output - 1 for number, one in enumerate(texts)}
    assert sorted(executor.released) == list(range(len(texts)))
    assert [len(one.tokens) for one in result] == [one.output for one in texts]
    return result, drive.steps


def batches(steps: list[TokenStep]) -> list[tuple[int | None, tuple[int, ...]]]:
    return [(step.batch.chunk, step.batch.decodes) for step in steps]


THREE = requests((0, 6, 3), (0, 4, 2), (130, 4, 2))


def test_each_policy_in_its_order() -> None:
    orders = {
        "fcfs": [(0, ()), (0, ()), (None, (0,)), (None, (0,)), (1, ()), (None, (1,)), (2, ()), (None, (2,))],
        "prefill_first": [(0, ()), (0, ()), (1, ()), (2, ()), (None, (0, 1, 2)), (None, (0,))],
        "decode_first": [(0, ()), (0, ()), (1, ()), (2, ()), (None, (0, 1, 2)), (None, (0,))],
        "chunked": [(0, ()), (0, ()), (1, (0,)), (2, (0, 1)), (None, (2,))],
    }
    for name, order in orders.items():
        assert batches(served(name, THREE)[1]) == order, name
    late = [*THREE, *requests((650, 4, 2))]  # nobody joins a batch that writes
    assert batches(served("decode_first", late)[1])[3:] == [
        (2, ()), (None, (0, 1, 2)), (None, (0,)), (3, ()), (None, (3,)),
    ]  # fmt: skip
    assert batches(served("prefill_first", late)[1])[4:] == [(None, (0, 1, 2)), (3, ()), (None, (0, 3))]


def test_no_more_texts_than_seats() -> None:
    for name in SHIPPED:
        _, steps = served(name, THREE, seats=1)
        assert all(len(step.reads) == 1 for step in steps)
        assert len(steps) == 8


def test_lookahead_takes_short_texts_first_and_watches_limits() -> None:
    """Without limits the short one is read first; where mixing would be too slow for a limit, a text goes alone."""
    _, steps = served("lookahead", requests((0, 12, 8), (0, 4, 2)))
    assert steps[0].batch.chunk == 1
    strict = [*requests((0, 4, 4), limits=TextLimits(200, 130)), *requests((10, 8, 2))]
    (first, _), steps = served("lookahead", strict)
    assert first.met
    assert "0 would come too late" in {step.batch.reason for step in steps}
    (first, _), _ = served("chunked", strict)
    assert not first.met
    hurry = [*requests((0, 4, 9)), *requests((10, 8, 2), limits=TextLimits(460))]
    (_, second), steps = served("lookahead", hurry)
    assert second.met
    assert any(step.batch.reason.endswith("alone") and step.batch.chunk == 1 for step in steps)
    (_, second), _ = served("chunked", hurry)
    assert not second.met


def test_one_text_late_texts_and_waits() -> None:
    for name in SHIPPED:
        (text,), steps = served(name, requests((1000, 1, 1), limits=TextLimits(160, 5)), wait=7)
        assert (text.ttft, text.tpot, text.met) == (157, None, True)
        assert (steps[0].seen, steps[0].start, steps[0].end) == (1000, 1007, 1157)
        _, steps = served(name, requests((0, 2, 2), (9_000, 2, 2)))
        assert steps[-1].end == 9_000 + 150 + 120


def test_the_last_token_of_a_text_is_due_when_each_after_the_first_has_had_its_time() -> None:
    text = Text(number=0, arrival=50, prompt=4, output=3, limits=TextLimits(200, 120))
    assert text.deadline == 250
    assert replace(text, first=180).deadline == 180 + 2 * 120
    assert replace(text, first=180, limits=TextLimits(200)).deadline is None


def test_what_is_measured() -> None:
    texts, steps = served("fcfs", requests((50, 4, 3), (50, 4, 1), limits=TextLimits(200, 120)))
    assert [(one.ttft, one.tpot, one.met) for one in texts] == [(150, 120.0, True), (540, None, False)]
    metrics = measure(texts, steps)
    assert (metrics.cycles, metrics.tokens, metrics.good_tokens, metrics.met) == (540, 4, 3, 1)
    assert (metrics.ttft.mean, metrics.ttft.median, metrics.ttft.worst, metrics.batch) == (345, 150, 540, 1)
    assert spread(list(range(1, 201))).p99 == 198
    assert spread([]).worst == 0
    assert measure(*served("fcfs", requests((50, 4, 2)))).batch == 1


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (Batch(), "scheduler mine, cycle 0: its batch is empty; a step reads a chunk or decodes"),
        (Batch(7), "text 7 cannot be read: it has been, has not arrived, or no seat is free"),
        (Batch(None, (0,)), "texts .0,. do not all write, or one is there twice"),
    ],
)
def test_batches_that_cannot_be(batch: Batch, text: str) -> None:
    with pytest.raises(ServingError, match=text):
        TokenDrive(Executor(), Always(batch), 1, 4).run(THREE)


def test_the_scheduler_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture" / "serving_tokens.md").read_text(encoding="utf-8")
    block = page[page.index("    from meshloom") : page.index("## What is measured")]
    (tmp_path / "mine.py").write_text(dedent(block))
    _, steps = served(f"{tmp_path / 'mine.py'}:decide", THREE)
    assert batches(steps)[0] == (1, ())
    assert TOKENS.get(f"{tmp_path / 'mine.py'}:decide").source == str(tmp_path / "mine.py"), "errors are traced to it"


def test_schedulers_by_name(tmp_path: Path) -> None:
    assert TOKENS.names() == SHIPPED
    with pytest.raises(SchedulerError, match=r"unknown token scheduler 'chunkd'.*chunked"):
        token_scheduler("chunkd")
    with pytest.raises(SchedulerError, match="token scheduler lookahead has no options; leave out :penalty=3"):
        token_scheduler("lookahead:penalty=3")
    file = tmp_path / "mine.py"
    head = "from meshloom.sched.schedulers.tokens.interface import Batch, TextView\n\n\n"
    file.write_text(head + "def decide(view: TextView) -> Batch:\n    return Batch(view.texts[9].number)\n")
    with pytest.raises(SchedulerError, match=r"failed in cycle 0: IndexError.*line 5"):
        served(f"{file}:decide", THREE)
    file.write_text(head + "def decide(view: TextView) -> Batch:\n    return 5\n")
    with pytest.raises(SchedulerError, match="answered in cycle 0 with 5; it must be a Batch"):
        served(f"{file}:decide", THREE)
    file.write_text(head + "def decide(view: int) -> Batch:\n    return Batch()\n")
    with pytest.raises(SchedulerError, match="must be a function with a parameter annotated TextView, or a class"):
        token_scheduler(f"{file}:decide")
    file.write_text(head + "import os\ndef decide(view: TextView) -> Batch:\n    os.abort()\n")
    with pytest.raises(SchedulerError, match=r"failed in cycle 0: its process was ended by SIGABRT .*line 6 of mine"):
        served(f"{file}:decide", THREE)
    file.write_text(head + "class Mine:\n    def __init__(self): 1 / 0\n    def decide(self, view): pass\n")
    with pytest.raises(SchedulerError, match="failed before the first cycle: ZeroDivisionError"):
        token_scheduler(f"{file}:Mine")
    file.write_text(head + "async def decide(view: TextView) -> Batch:\n    return Batch()\n")
    with pytest.raises(SchedulerError, match="is an async function, which would never run"):
        token_scheduler(f"{file}:decide")
    file.write_text(
        head + "class Mine:\n    def __init__(self, platform, a=1): ...\n    def decide(self, view): pass\n"
    )
    with pytest.raises(SchedulerError, match=r"Mine of .* takes platform; a class of token schedulers is made without"):
        token_scheduler(f"{file}:Mine")


def test_one_in_a_process_of_its_own_asks_for_cycles_within_its_time(tmp_path: Path) -> None:
    file, head = tmp_path / "mine.py", "from meshloom.sched.schedulers.tokens.interface import Batch, TextView\n"
    file.write_text(
        head + "def decide(view: TextView) -> Batch:\n"
        "    one = Batch(view.texts[0].number) if view.reading else Batch(None, (view.texts[0].number,))\n"
        "    return Batch(one.chunk, one.decodes, str(view.cycles(one)))\n"
        "def asks(view: TextView) -> Batch:\n"
        "    while view.cycles(Batch(0)): pass\n"
    )
    _, steps = served(f"{file}:decide", requests((0, 6, 3)))
    assert [step.batch.reason for step in steps] == ["150", "150", "120", "120"]
    limits = guarded(guard_of(0.3))
    with limits, pytest.raises(SchedulerError, match=r"asks failed in cycle 0: no result within 0\.3 seconds"):
        served(f"{file}:asks", THREE)
