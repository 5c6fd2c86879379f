"""Models with experts on the RTL: every tensor of every program right, weights read of the chosen experts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.ir.schedule import Move, intervals
from meshloom.sched.workload.language.experts import Part
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageError
from meshloom.sched.workload.language.model import load as load_model
from meshloom.sched.workload.texts import load as load_texts
from meshloom.tb.devices.images import loads
from meshloom.tb.devices.interface import Job
from meshloom.tb.runs.language.expert_step import ExpertModel, expert_bytes
from meshloom.tb.runs.language.generation import Generation, generate
from meshloom.tb.runs.language.programs import PartProgram, Programs
from meshloom.tb.runs.language.state import TextStateError, first_state
from meshloom.tb.runs.network import PreparedNetwork, job
from meshloom.tb.runs.tokens.serve import serve

from ..sched.language_models import entries, model_with_experts
from .command_line import invoke

EXAMPLES = Path(__file__).parents[2] / "examples" / "texts" / "experts"
SCHEDULER = "loop_order:effort=quick"


def on_tiny(folder: Path, **changes: Any) -> Generation:
    base = Generation(model_with_experts(), "abcde", 4, load_chip("tiny"), folder / "text.npz", chunk=4, device=None)
    return replace(base, **changes)


def programs(**changes: Any) -> Programs:
    return Programs(integers(model_with_experts()), load_chip("tiny"), SCHEDULER, **changes)


@pytest.mark.slow
def test_every_tensor_of_every_program_is_right_on_the_rtl(tmp_path: Path) -> None:
    """Prefill in a chunk and a token, then decode; the same tokens, cycles and choices as without a device."""
    results = generate(on_tiny(tmp_path, device="verilator"))
    assert results.ok, results.reasons
    assert (results.prefill.steps, results.prefill.tokens, results.decode.tokens) == (2, 5, 3)
    assert results.decode.rtl_cycles == results.decode.model_cycles > results.decode.least_cycles > 0
    assert results.experts is not None
    assert [sum(some) for some in results.experts.choices] == [2 * 8] * 2
    assert all(2 + 4 * 2 <= sum(some) <= 4 + 4 * 2 for some in results.experts.fetched)
    assert results.decode.round_trips == 3 * 2
    assert results.decode.expert_bytes == 3 * 2 * 2 * expert_bytes(model_with_experts(), 0, load_chip("tiny"))
    assert 0 < results.decode.expert_cycles < results.decode.model_cycles
    assert results.experts.round_trip_cycles == 128 + 48
    first, later = results.prefill.host_bytes, results.decode.host_bytes
    assert first is not None
    assert later is not None
    assert later / 3 < first / 2
    model = generate(on_tiny(tmp_path, keep=tmp_path / "other.npz"))
    assert (model.text, model.decode.model_cycles) == (results.text, results.decode.model_cycles)
    assert model.experts == results.experts
    assert model.decode.host_bytes is None


@pytest.mark.slow
def test_what_stays_in_dram_nobody_loads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench hands out wrong bytes of all that earlier programs have loaded or left: caches, constants, experts, and
    what programs hand on. Every byte is right."""
    seen: set[str] = set()
    count = 0

    def damaged(prepared: PreparedNetwork, *others: Any) -> Job:
        nonlocal count
        whole, fresh, wrong = job(prepared, *others), set[str](), list[bool]()
        for tensor in prepared.network_schedule.schedule.tensors:
            if tensor.role == "output":
                continue
            if tensor.role == "constant":
                name = f"{prepared.graph.name} {tensor.name}"
            elif "/up@" in tensor.name or "/down@" in tensor.name:
                name = f"{tensor.name[:-2]} at {tensor.pieces[0].address}"
            elif tensor.name.endswith(("/past", "/z", "/z/rescaled", "/feed")):
                name = tensor.name
            else:
                name = ""
            left = name.endswith(("/z", "/z/rescaled", "/feed"))  # by the program before
            fresh.add(name)
            wrong += [bool(name) and (left or name in seen)] * len(tensor.pieces)
        seen.update(fresh)
        count += sum(wrong)
        pairs = zip(whole.memory, wrong, strict=True)
        return replace(whole, memory=[(tile, at, words ^ 0xFF if bad else words) for (tile, at, words), bad in pairs])

    monkeypatch.setattr("meshloom.tb.runs.language.comparison.job", damaged)
    results = generate(on_tiny(tmp_path, device="verilator"))
    assert results.ok, results.reasons
    assert count > 100
    assert results.text == generate(on_tiny(tmp_path, device=None, keep=tmp_path / "other.npz")).text


@pytest.mark.slow
def test_programs_for_which_there_is_no_room_lie_in_the_place_of_others(tmp_path: Path) -> None:
    """In a row of their own: what the others have left there is not taken for theirs, and every byte is right."""
    roomy = programs()
    ExpertModel(roomy).step(4)
    chip = load_chip("tiny")
    words = roomy._end + 100
    small = chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": words})})
    results = generate(on_tiny(tmp_path, device="verilator", chip=small))
    assert results.ok, results.reasons
    tight = replace(roomy, chip=small, _programs={}, _rows={}, _there=set(), _begin=1, _end=1)
    model = ExpertModel(tight)
    model.step(4)
    model.step(1)
    assert {*tight._rows.values()} >= {0, 1}
    assert results.text == generate(on_tiny(tmp_path, keep=tmp_path / "other.npz")).text


@pytest.mark.slow
def test_what_batches_share_nobody_loads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one text and of two read the same experts; the bench hands out wrong bytes of those that are there."""
    np.savez(tmp_path / "mixed.npz", allow_pickle=False, **entries(layers=2, experts=4, top=2))
    (tmp_path / "two.toml").write_text(
        'name = "two"\nmodel = "mixed.npz"\nseats = 2\nchunk = 4\n'
        '[[request]]\nprompt = "abcde"\noutput = 3\n[[request]]\nprompt = 3\noutput = 2\narrival = 5_000\n'
    )
    seen, count = set[tuple[str, int]](), 0

    def damaged(prepared: PreparedNetwork, *others: Any) -> Job:
        nonlocal count
        whole, fresh, wrong = job(prepared, *others), set[tuple[str, int]](), list[bool]()
        for tensor in prepared.network_schedule.schedule.tensors:
            if tensor.role != "output":
                expert = "/up@" in tensor.name or "/down@" in tensor.name
                name = tensor.name[:-2] if expert else f"{prepared.graph.name} {tensor.name}"
                key = name, tensor.pieces[0].address
                wrong += [(expert or tensor.role == "constant") and key in seen] * len(tensor.pieces)
                fresh.add(key)
        seen.update(fresh)
        count += sum(wrong)
        pairs = zip(whole.memory, wrong, strict=True)
        return replace(whole, memory=[(tile, at, words ^ 0xFF if bad else words) for (tile, at, words), bad in pairs])

    monkeypatch.setattr("meshloom.tb.runs.language.comparison.job", damaged)
    for _ in range(2):
        (run,) = serve([load_texts(tmp_path / "two.toml")], load_chip("tiny"), ["chunked"])
        assert not run.reasons
        seen.clear()
    assert count > 100


def test_experts_that_nobody_chose_are_not_read() -> None:
    """A program moved to two experts reads words of these two alone, each once for all tokens."""
    numbers = integers(model_with_experts())
    program = PartProgram(numbers, Part((3,), 0, 2), load_chip("tiny"), SCHEDULER, 1, lambda what: None)
    layout = program.at((3,), (0, 1)).network_schedule.schedule
    for experts in ((1, 3), (0, 2), (2, 3)):
        schedule = program.at((3,), experts).network_schedule.schedule
        for name, width in (("up", 32), ("down", 16)):
            first = layout.tensor(f"0/{name}@0").pieces[0].address
            chosen = {
                word
                for number in range(2)
                for piece in schedule.tensor(f"0/{name}@{number}").pieces
                for word in range(piece.address, piece.address + piece.words)
            }
            planes = len(layout.tensor(f"0/{name}@0").pieces)
            region = range(first, first + planes * 4 * width)
            assert {(word - first) // width % 4 for word in chosen} == set(experts)
            read = [
                word
                for op in schedule.operations
                if isinstance(op, Move) and op.src.tile in load_chip("tiny").drams and op.src.address in region
                for first_word, end in intervals(op.src, op.words)
                for word in range(first_word, end)
            ]
            assert sorted(read) == sorted(chosen)


@pytest.mark.slow
def test_a_wrong_expert_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is moved to the next expert but one reads other weights."""
    moved = PartProgram.at

    def elsewhere(self: PartProgram, totals: Any, experts: Any) -> PreparedNetwork:
        right = moved(self, totals, experts)
        other = [(expert + 1) % 4 for expert in experts]
        return replace(right, program=moved(self, totals, other).program) if experts else right

    made = Programs.of

    def of(self: Programs, part: Part) -> PartProgram:
        with monkeypatch.context() as patch:  # a program is checked when it is made
            patch.setattr(PartProgram, "at", moved)
            return made(self, part)

    monkeypatch.setattr(Programs, "of", of)
    monkeypatch.setattr(PartProgram, "at", elsewhere)
    results = generate(on_tiny(tmp_path, device="verilator"))
    assert results.mismatches
    assert "wrong bytes, first in plane" in results.first_mismatch
    assert not results.complete


@pytest.mark.slow
def test_an_interrupted_text_goes_on_to_the_same_tokens(tmp_path: Path) -> None:
    def stop(text: str) -> None:
        raise KeyboardInterrupt

    whole = generate(on_tiny(tmp_path))
    cut = on_tiny(tmp_path, keep=tmp_path / "cut.npz")
    with pytest.raises(KeyboardInterrupt):
        generate(cut, on_token=stop)
    again = generate(cut)
    same = {"started", "checkpoint"}
    assert again.model_dump(exclude=same) == whole.model_dump(exclude=same)
    with np.load(cut.keep) as file:
        arrays = dict(file)
    np.savez(cut.keep, allow_pickle=False, **(arrays | {"choices": np.zeros((2, 3), np.int64)}))
    with pytest.raises(TextStateError, match="what its experts did is of another shape"):
        generate(cut)
    other = on_tiny(tmp_path, model=model_with_experts(top=np.array(1)))
    with pytest.raises(TextStateError, match="was made with weights = "):
        generate(other)


@pytest.mark.slow
def test_guesses_change_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = generate(on_tiny(tmp_path, tokens=6))
    tokens = model_with_experts().tokens("abcde" + plain.text).tolist()
    monkeypatch.setattr(
        "meshloom.tb.runs.language.generation.guess",
        lambda text, count: [*(tokens + [0] * count)[len(text) :][:1], *[0] * (count - 1)],
    )
    results = generate(on_tiny(tmp_path, tokens=6, speculate=2, keep=tmp_path / "other.npz"))
    assert results.text == plain.text
    assert results.decode.steps < plain.decode.steps


@pytest.mark.slow
def test_skewed_choices_read_less() -> None:
    """Four tokens that all take the same two experts, and four that take all."""
    made = programs()
    text = [(model_with_experts().tokens("abcd"), first_state(model_with_experts(), "").caches)]
    ran: list[Any] = []
    for chosen in ([[0, 1]] * 4, [[0, 1], [2, 3], [1, 2], [0, 3]]):
        gates = np.zeros((4, 4), np.int8)
        np.put_along_axis(gates, np.array(chosen), np.int8(63), axis=1)
        choice = np.array(chosen), gates
        ran.append(ExpertModel(made, lambda layer, scores, choice=choice: choice).run(text, None))
    alike, even = ran
    assert alike.routing.tokens.tolist() == [[4, 4, 0, 0]] * 2
    assert alike.routing.fetches.sum() * 2 == even.routing.fetches.sum() == 8
    assert alike.routing.expert_bytes * 2 == even.routing.expert_bytes
    assert alike.comparison.model_cycles < even.comparison.model_cycles
    assert alike.dram_bytes < even.dram_bytes - even.routing.expert_bytes / 2


def test_experts_that_dram_has_no_room_for(tmp_path: Path) -> None:
    chip = load_chip("tiny")
    small = chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": 2000})})
    text = (
        "the experts of mixed take 2048 words of DRAM, its caches 704, chip tiny has 2000; give its .dram. more words"
    )
    with pytest.raises(LanguageError, match=text):
        generate(on_tiny(tmp_path, chip=small))
    assert not list(tmp_path.iterdir())


def test_traces_lie_behind_what_stays() -> None:
    """The records of a program are written behind everything that stays, also where it has nothing."""
    program = PartProgram(
        integers(model_with_experts()), Part((1,), 2), load_chip("tiny"), SCHEDULER, 1, lambda _: None
    )
    (dram,) = load_chip("tiny").drams
    work = Job(program.prepared.program, [], [], stays=[(dram, program.end + 500, 3)])
    assert loads(work, load_chip("tiny"), anew=False).free[dram] == program.end + 503
    assert loads(work, load_chip("tiny"), anew=True).free[dram] == program.end + 503


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "mixed.npz", allow_pickle=False, **entries(layers=2, experts=4, top=2))
    command = ["generate", "mixed.npz", "--prompt", "abc", "--chip", "tiny", "--model", "--tokens", "2"]
    shown = invoke(*command)
    assert shown.exit_code == 0, shown.stderr
    told = " ".join(shown.stdout.replace("│", " ").split())
    assert "experts, layer 1 tokens of each: " in told
    assert "2 of 4 a token, the busiest" in told
    np.savez(tmp_path / "mixed.npz", allow_pickle=False, **(entries(layers=2, experts=4) | {"top": np.array(5)}))
    refused = invoke(*command)
    assert refused.exit_code == 2
    assert "top = 5, and it has layers with 4 experts; say how many" in " ".join(refused.stderr.split())


TEXTS = """
name = "two"
model = "mixed.npz"
seats = 2
chunk = 4
[[request]]
prompt = "abcde"
output = 3
[[request]]
prompt = 3
output = 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", [None, "verilator"])
def test_texts_are_served(tmp_path: Path, device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By any scheduler the same texts; on the RTL every byte right, in the cycles of the model, choices beside them."""
    np.savez(tmp_path / "mixed.npz", allow_pickle=False, **entries(layers=2, experts=4, top=2))
    (tmp_path / "two.toml").write_text(TEXTS)
    names = ["chunked"] if device else ["chunked", "fcfs", "lookahead"]
    runs = serve([load_texts(tmp_path / "two.toml")], load_chip("tiny"), names, device=device, decision_cycles=40)
    assert not any(run.reasons for run in runs)
    assert len({tuple(text.text for text in run.texts) for run in runs}) == 1
    run = runs[0]
    assert all(len(text.text) == text.output for text in run.texts)
    assert run.bytes_checked > 0 or device is None
    assert run.wait == 128 + 48 + 40
    for step in run.steps:
        assert step.experts is not None
        assert (step.experts.round_trips, step.experts.host_cycles) == (2, 2 * run.wait)
        cycles = step.model_cycles if step.rtl_cycles is None else step.rtl_cycles
        assert cycles == step.model_cycles
        assert step.end - step.start == cycles + step.experts.host_cycles
        read = step.chunk_tokens + len(step.decodes)
        assert 2 * 2 <= step.experts.fetched <= 2 * min(4, 2 * read)
    assert run.experts is not None
    assert run.experts.fetched == sum(step.experts.fetched for step in run.steps if step.experts)


@pytest.mark.slow
def test_the_trained_model_on_quad16(tmp_path: Path) -> None:
    text = Generation(
        load_model("shakespeare_experts"), "ROMEO:\nI will not ", 3, load_chip("quad16"), tmp_path / "text.npz"
    )
    results = generate(text)
    assert results.ok, results.reasons
    assert results.text == "the"
    assert results.perplexity < results.float_perplexity * 1.02 < 4.4
    assert results.decode.rtl_cycles == results.decode.model_cycles
    assert results.experts is not None
    assert max(results.experts.busiest) < 3


@pytest.mark.slow
def test_the_examples_differ_in_how_skewed_they_are() -> None:
    balanced, skewed = serve(
        [load_texts(EXAMPLES / f"{name}.toml") for name in ("balanced", "skewed")], load_chip("quad16"),
        ["prefill_first"], device=None,
    )  # fmt: skip
    assert balanced.experts is not None
    assert skewed.experts is not None
    assert skewed.experts.fetched < 0.6 * balanced.experts.fetched
    assert skewed.figures.cycles < 0.95 * balanced.figures.cycles
    assert skewed.dram_bytes_per_token < 0.9 * balanced.dram_bytes_per_token
