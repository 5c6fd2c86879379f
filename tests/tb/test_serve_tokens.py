"""Serving texts: every tensor right on the RTL, the model's cycles, the same tokens by every scheduler, one line for
what cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.store.store import Store
from meshloom.sched.workload.language import pretrained
from meshloom.sched.workload.language.graph import batch_graph
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageError
from meshloom.sched.workload.language.model import load as load_model
from meshloom.sched.workload.texts import TextScenario, load
from meshloom.tb.api.completion import complete_token_schedulers
from meshloom.tb.devices.interface import Job
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.results.past import past
from meshloom.tb.results.tokens import TokenResults, TokenRun
from meshloom.tb.runs.language.generation import Generation, generate
from meshloom.tb.runs.language.shared import SharedDram
from meshloom.tb.runs.network import PreparedNetwork, job
from meshloom.tb.runs.tokens.kept import KeptSteps
from meshloom.tb.runs.tokens.serve import STEPS, _prompts, serve
from meshloom.tb.runs.tokens.step import (
    BatchOutcome,
    BatchStep,
    ExpertCost,
    cache_names,
    check_seats,
    no_caches,
    seat_words,
)

from ..sched.language_models import decoder, entries, random_model
from .command_line import invoke, results_in

EXAMPLES = Path(__file__).parents[2] / "examples" / "texts"
TEXTS = """
name = "two"
model = "small.npz"
seats = 2
chunk = 4
ttft_limit = 400_000
[[request]]
prompt = "abcde"
output = 3
[[request]]
prompt = 3
output = 2
arrival = 5_000
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a model and a scenario."""
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "small.npz", allow_pickle=False, **entries())
    (tmp_path / "two.toml").write_text(TEXTS)
    return tmp_path


def served(scenario: TextScenario, scheduler: str, device: str | None = None, chip: str = "tiny") -> TokenRun:
    (run,) = serve([scenario], load_chip(chip), [scheduler], device=device)
    return run


@pytest.mark.parametrize("family", ["random", "qwen2", "bloom"])
def test_a_text_has_the_same_numbers_in_any_company(family: str, tmp_path: Path) -> None:
    """Side by side with a chunk of another, in a chunk with places that are left over, or alone."""
    model = random_model() if family == "random" else pretrained.load(str(decoder(family, tmp_path)), context=16)
    numbers, chip, tokens = integers(model), load_chip("tiny"), np.arange(8)
    graphs = {news: batch_graph(numbers, news) for news in ((4,), (4, 1), (1,))}
    values: dict[tuple[int, ...], Any] = {}
    for news, texts in (
        ((4,), [(tokens[:3], no_caches(model))]),
        ((4, 1), [(tokens[2:6], no_caches(model)), (tokens[:1], no_caches(model))]),
        ((1,), [(tokens[:1], no_caches(model))]),
    ):
        step = BatchStep.__new__(BatchStep)  # the inputs alone: nothing is scheduled
        step.integers, step.news, step.chip, step.graph = numbers, news, chip, graphs[news]
        values[news] = golden_values(graphs[news], step.inputs(texts))
    alone, both = values[1,], values[4, 1]
    np.testing.assert_array_equal(both["scores"][..., 4:], alone["scores"])
    for name in cache_names(model):
        np.testing.assert_array_equal(both[f"{name}@1"], alone[name])
        # a token's keys and values of the first layer do not depend on those before it
        np.testing.assert_array_equal(values[4,][name][..., 1:2], alone[name])


def test_layers_of_texts_come_in_turn() -> None:
    """A unit that waits for the layer of a text has another's to do; weights are multiplied once for all."""
    names = [layer.output for layer in batch_graph(integers(random_model()), (2, 1)).layers]
    at = names.index("0/q@0")
    assert names[at : at + 4] == ["0/q@0", "0/q@1", "0/scores@0", "0/scores@1"]
    assert names[at + 4 : at + 6] == ["0/attention@0/kept", "0/attention@1/kept"]
    assert [name for name in names if name in ("0/q", "0/k", "0/v")] == ["0/k", "0/q", "0/v"]


def test_every_tensor_is_right_on_the_rtl(folder: Path) -> None:
    """A chunk beside a token, and two tokens, with places left over; the same cycles as in the model, and the same
    tokens as `meshloom generate` writes of each text alone."""
    scenario = load(folder / "two.toml")
    run = served(scenario, "chunked", "verilator")
    assert not run.reasons
    assert run.bytes_checked > 5 * 1500
    assert {(step.chunk_tokens, len(step.decodes)) for step in run.steps} >= {(1, 0), (4, 0), (3, 1), (0, 2)}
    assert all(step.rtl_cycles == step.model_cycles == step.end - step.start for step in run.steps)
    for text in run.texts:
        assert text.end == pytest.approx(text.arrival + text.ttft + (text.tpot or 0) * (text.output - 1))
    assert [len(text.text) for text in run.texts] == [3, 2]
    alone = Generation(random_model(), "abcde", 3, load_chip("tiny"), folder / "alone.npz", chunk=4, device=None)
    assert run.texts[0].text == generate(alone).text
    model = served(scenario, "chunked")
    assert model.figures == run.figures
    assert [step.rtl_cycles for step in model.steps] == [None] * len(run.steps)
    assert model.host_bytes is None
    first, *others = (step.host_bytes or 0 for step in run.steps)
    assert 0 < min(others) < first < first + sum(others) == run.host_bytes
    assert [(text.ttft, text.met, text.text) for text in model.texts] == [(text.ttft, True, "") for text in run.texts]


@pytest.mark.slow
def test_what_steps_share_nobody_loads_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench hands out wrong bytes of all weights that another step has loaded, and of all constants that the same
    step has: every byte is right. Another run begins anew."""
    seen, host = set[tuple[str, str]](), list[tuple[tuple[int, ...], int]]()

    def damaged(prepared: PreparedNetwork, *others: Any) -> Job:
        whole, fresh, wrong = job(prepared, *others), set[tuple[str, str]](), list[bool]()
        for tensor in prepared.network_schedule.schedule.tensors:
            if tensor.role != "output":
                key = ("" if tensor.name.endswith("/w") else prepared.graph.name, tensor.name)
                wrong += [tensor.role == "constant" and key in seen] * len(tensor.pieces)
                fresh.add(key)
        seen.update(fresh)
        pairs = zip(whole.memory, wrong, strict=True)
        return replace(whole, memory=[(tile, at, words ^ 0xFF if bad else words) for (tile, at, words), bad in pairs])

    real = BatchStep.run

    def noted(self: BatchStep, *some: Any) -> BatchOutcome:
        outcome = real(self, *some)
        host.append((self.news, outcome.host_bytes))
        return outcome

    monkeypatch.setattr("meshloom.tb.runs.language.comparison.job", damaged)
    monkeypatch.setattr(BatchStep, "run", noted)
    scenario = load(folder / "two.toml")
    run = served(scenario, "chunked", "verilator")
    assert not run.reasons
    (first, least) = (max(bytes for news, bytes in host if news == (4,)), min(bytes for news, bytes in host))
    assert least < first / 4
    seen.clear()
    assert not served(scenario, "fcfs", "verilator").reasons


def test_steps_lie_behind_the_caches_of_all_seats(folder: Path) -> None:
    """Also those of fewer texts; what a step takes does not depend on those that were made before it."""
    numbers, chip = integers(random_model()), load_chip("tiny")
    shared = [SharedDram(chip, 3 * seat_words(random_model(), chip)) for _ in range(2)]
    news = ((4,), (4, 1), (1,))
    steps = [BatchStep(numbers, each, chip, "loop_order:effort=quick", shared=shared[0]) for each in news]
    last = [BatchStep(numbers, each, chip, "loop_order:effort=quick", shared=shared[1]) for each in ((4,), (1,))][-1]
    assert last.predicted == steps[-1].predicted
    assert all(step.dram is shared[0] for step in steps)
    for step in steps:
        own = [each for each in step.prepared.network_schedule.schedule.tensors if not each.name.endswith("/past")]
        caches = [piece for each in step.regions for pairs in each.words.values() for piece in pairs]
        assert max(end for _, end in caches) <= 3 * seat_words(random_model(), chip)
        assert min(piece.address for tensor in own for piece in tensor.pieces if tensor.role != "output") >= max(
            end for _, end in caches
        )
    tight = chip.model_copy(update={"dram": replace_words(chip, shared[0].begin - 1)})
    small = SharedDram(tight, 3 * seat_words(random_model(), chip))
    alone = [BatchStep(numbers, each, tight, "loop_order:effort=quick", shared=small) for each in news]
    assert {step.dram is small for step in alone} == {True, False}, "some have a DRAM of their own"


@pytest.mark.slow
def test_a_folder_of_transformers_is_served_on_the_rtl(folder: Path) -> None:
    """Its prompts are as long as its own tokens of them, and each text is what it is alone."""
    decoder("llama", folder)
    text = (folder / "two.toml").read_text().replace("small.npz", "llama")
    (folder / "two.toml").write_text(text.replace('"abcde"', '"what light"'))
    run = served(load(folder / "two.toml"), "chunked", "verilator")
    assert not run.reasons
    assert run.bytes_checked > 10_000
    model = pretrained.load("llama")
    assert run.texts[0].prompt == len(model.tokens("what light")) < len("what light")
    alone = Generation(model, "what light", 3, load_chip("tiny"), folder / "alone.npz", chunk=4, device=None)
    assert generate(alone).text.startswith(run.texts[0].text.rstrip("\N{REPLACEMENT CHARACTER}"))


def test_the_text_and_the_context_of_a_folder(folder: Path) -> None:
    """In the scenario, as options of `generate` say them; prompts of a length are of the text's rest."""
    decoder("gpt2", folder)
    (folder / "own.txt").write_text("what light is the sun? " * 20)
    text = TEXTS.replace("small.npz", "gpt2").replace("seats = 2", 'seats = 2\ncontext = 20\ncalibrate = "own.txt"')
    (folder / "two.toml").write_text(text)
    _, second = (scenario := load(folder / "two.toml")).requests
    assert served(replace(scenario, requests=(replace(second, output=1),)), "chunked").context == 20
    for change, wrong in (
        (text.replace("output = 3", "output = 30"), "shorten one of them, or take a larger context, up to 48"),
        (text.replace("prompt = 3", "prompt = 30"), "by `shrink`, or take a larger context, up to 48"),
        (text.replace("own.txt", "none.txt"), "none.txt: cannot be read (No such file or directory); name another"),
        (text.replace("= 20", "= 49"), "take a context of 2 to 48, not 49"),
        (text.replace('"gpt2"', '"small.npz"'), "leave `calibrate` and `context` out"),
        (text.replace("= 20", "= 1"), "context = 1 must be at least 2"),
    ):
        (folder / "two.toml").write_text(change)
        refused = invoke("serve-tokens", "two.toml", "--chip", "tiny", "--model")
        assert refused.exit_code == 2, refused.output
        assert wrong in " ".join(refused.stderr.split()).replace("│ ", "").replace(" │", "")
    (folder / "two.toml").write_text(text)
    refused = invoke("serve-tokens", "two.toml", "--chip", "tiny", "--model", "--set", "dram.words=64")
    assert "the weights of model gpt2 alone take" in refused.stderr


def test_prompts_of_a_length_follow_each_other_in_the_text() -> None:
    model: Any = SimpleNamespace(tokens=lambda text: np.frombuffer(text.encode(), np.uint8), held_out="abcdefgh")
    wishes = [SimpleNamespace(prompt=3, text=text) for text in ("", "", "xy", "")]
    prompts = _prompts(cast("Any", SimpleNamespace(requests=wishes)), model)
    assert [bytes(each.tolist()) for each in prompts] == [b"abc", b"def", b"xy", b"bcd"]


def test_a_wrong_byte_in_a_cache_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text whose cache lies elsewhere than it should reads other keys."""
    moved = BatchStep._program
    monkeypatch.setattr(BatchStep, "_program", lambda self, totals: moved(self, [min(16, t + 1) for t in totals]))
    first, _ = (scenario := load(folder / "two.toml")).requests
    run = served(replace(scenario, requests=(replace(first, prompt=2, text="ab", output=2),)), "fcfs", "verilator")
    assert run.mismatches
    assert run.first_mismatch.startswith("step ")
    assert "two by fcfs: " in run.reasons[0]


def test_the_command(folder: Path) -> None:
    command = ["serve-tokens", "two.toml", "--chip", "tiny", "--model"]
    shown = invoke(*command, "--scheduler", "all", "--json", "a.json", "--clock", 100)
    assert shown.exit_code == 0, shown.stderr
    results = TokenResults.model_validate_json(Path("a.json").read_text())
    assert [run.scheduler for run in results.runs] == ["chunked", "decode_first", "fcfs", "lookahead", "prefill_first"]
    assert len({run.figures.tokens for run in results.runs}) == 1
    chunked, *_ = results.runs
    assert chunked.tokens_per_second == pytest.approx(chunked.figures.tokens_per_megacycle * 100)
    assert "two by chunked: " in shown.stdout
    assert " tokens/s at 100 MHz, TTFT " in shown.stdout
    one = invoke(*command)
    assert "two on tiny by chunked" in one.stdout
    assert "2 of 2" in one.stdout
    assert len(list(results_in(folder).glob("*-tiny-two-serve-tokens.json"))) == 2
    newest = next(past(1, results_in(folder)))
    assert (newest.kind, newest.workloads, newest.device, newest.ended) == ("serve-tokens", ("two",), "model", "passed")


def test_token_schedulers_are_listed_and_completed() -> None:
    shown = invoke("schedulers", "--json", "-")
    names = [one["name"] for one in json.loads(shown.stdout)["schedulers"] if one["schedules"] == ["texts"]]
    assert names == ["chunked", "decode_first", "fcfs", "lookahead", "prefill_first"]
    one = invoke("schedulers", "fcfs")
    assert one.stdout.startswith("fcfs: One text at a time, in order of arrival, to its end.")
    assert "no options" in one.stdout
    assert complete_token_schedulers("") == [*names, "all"]
    assert complete_token_schedulers("dec") == ["decode_first"]


def test_what_cannot_be_is_one_line(folder: Path) -> None:
    command = ["serve-tokens", "two.toml", "--chip", "tiny", "--model"]
    for more, change, text in (
        (["--weight-bits", "7"], "", "7: weights have 4 or 8 bits"),
        (["--set", "core.int4"], "", "--set core.int4: give FIELD=VALUE"),
        (["--scheduler", "chunkd"], "", "unknown token scheduler 'chunkd'"),
        (["--scheduler", "all", "--scheduler", "all"], "", "all is given 2 times; give each once"),
        ([], TEXTS.replace("output = 3", "output = 30"), "a prompt of 5 tokens and an output of 30 are 34 tokens to"),
        ([], TEXTS.replace("prompt = 3", "prompt = 30"), "a prompt of 30 tokens is longer than the context of model"),
        ([], TEXTS.replace("small", "smaller"), "cannot be read (No such file or directory); name a file that is th"),
    ):
        (folder / "two.toml").write_text(change or TEXTS)
        refused = invoke(*command, *more)
        assert refused.exit_code == 2, refused.output
        assert text in " ".join(refused.stderr.split()).replace("│ ", "").replace(" │", "")
    assert not (folder / "sim_build").exists()


def test_a_cache_larger_than_memory() -> None:
    chip = load_chip("tiny")
    small = chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": 512})})
    check_seats(random_model(), small, 2)
    with pytest.raises(LanguageError, match=r"keys and values of 3 texts of random take 768 words .* tiny has 512"):
        check_seats(random_model(), small, 3)
    tiny = chip.model_copy(update={"dram": replace_words(chip, 128)})
    with pytest.raises(LanguageError, match="or take a model with a shorter context"):
        check_seats(random_model(), tiny, 1)
    with pytest.raises(LanguageError, match="more words, or take a shorter context"):
        check_seats(replace(random_model(), reach=32), tiny, 1)
    with pytest.raises(LanguageError, match=r"dram.words=\d+\), or take fewer seats, or take a shorter context$"):
        BatchStep(integers(replace(random_model(), reach=32)), (1, 1), tiny, "loop_order:effort=quick")


def replace_words(chip: Any, words: int) -> Any:
    return chip.dram.model_copy(update={"words": words})


def test_a_later_step_without_room_is_refused_before_the_first_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a DRAM that has room for the chunk, and none for the records of a chunk beside a token."""
    chip, numbers = load_chip("tiny"), integers(load_model("small.npz"))
    shared = SharedDram(chip, 2 * seat_words(numbers.model, chip))
    BatchStep(numbers, (4,), chip, STEPS, shared=shared)
    small = chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": shared.begin + 1})})
    ran = list[object]()
    monkeypatch.setattr(BatchStep, "run", lambda self, *some: ran.append(some))
    with pytest.raises(LanguageError, match=r"words of each DRAM tile with the records of a run; .* dram.words=\d+\)"):
        serve([load(folder / "two.toml")], small, ["chunked"])
    assert ran == []


def test_an_interrupt_says_how_far_it_came(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: BatchStep, totals: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchStep, "model_cycles", stop)
    shown = invoke("serve-tokens", "two.toml", "--chip", "tiny", "--model", "--json", "a.json")
    assert shown.exit_code == 130
    assert "interrupted while two was served by chunked, after 0 steps; kept: the simulator" in shown.stderr
    assert not Path("a.json").exists()


def test_an_interrupted_run_on_the_rtl_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on the device only what it has not run, ends as an undisturbed one does, and leaves nothing behind."""
    store = Store(folder / "kept")
    monkeypatch.setattr("meshloom.tb.runs.tokens.serve.KeptSteps", partial(KeptSteps, store=store))
    scenario, ran, real = load(folder / "two.toml"), list[tuple[int, ...]](), BatchStep.run

    def counted(self: BatchStep, *some: Any) -> Any:
        if len(ran) == stop:
            raise KeyboardInterrupt
        ran.append(self.news)
        return real(self, *some)

    monkeypatch.setattr(BatchStep, "run", counted)
    stop = -1
    whole = served(scenario, "chunked", "verilator")
    assert (whole.kept_steps, len(ran)) == (0, len(whole.steps))
    assert list((folder / "kept").glob("tokens-*")) == []
    ran.clear()
    stop = 3
    with pytest.raises(KeyboardInterrupt, match=r"after 3 steps; kept: these steps, the simulator, .* again to go on"):
        served(scenario, "chunked", "verilator")
    assert len(list((folder / "kept").glob("tokens-*"))) == 3
    stop = -1
    again = served(scenario, "chunked", "verilator")
    assert (again.kept_steps, len(ran)) == (3, len(whole.steps))
    assert list((folder / "kept").glob("tokens-*")) == []
    aside = {"kept_steps": True, "cpu_seconds": True, "host_bytes": True, "steps": {"__all__": {"host_bytes"}}}
    assert again.model_dump(exclude=aside) == whole.model_dump(exclude=aside)


def test_kept_steps_are_of_one_run_model_and_chip(tmp_path: Path) -> None:
    model = random_model()
    kept = KeptSteps(integers(model), load_chip("tiny"), {"verilator": "5"}, Store(tmp_path))
    texts = [(model.tokens("abc"), no_caches(model))]
    name = kept.name((4,), texts)
    new = {each: np.ones((model.width, 3), np.int8) for each in cache_names(model)}
    outcome = BatchOutcome(
        model_cycles=9, rtl_cycles=9, bytes_checked=5, scores=(np.arange(4, dtype=np.int8),), new=(new,),
        dram_bytes=70, experts=ExpertCost(1, 2, 30, 4),
    )  # fmt: skip
    kept.put(name, outcome)
    assert kept.get(name) is None, "of this run itself: it runs again"
    other = replace(kept, _own=set(), _old=set())
    back = other.get(name)
    assert back is not None
    assert (back.rtl_cycles, back.bytes_checked, other.number) == (9, 5, 1)
    assert (back.dram_bytes, back.experts) == (70, outcome.experts)
    np.testing.assert_array_equal(back.scores[0], outcome.scores[0])
    assert back.new[0].keys() == new.keys()
    assert name != kept.name((4, 1), texts)
    assert name != kept.name((4,), [(model.tokens("abd"), no_caches(model))])
    assert name != replace(kept, tools={"verilator": "6"}).name((4,), texts)
    assert name != replace(kept, chip=load_chip("quad8")).name((4,), texts)
    assert name != replace(kept, places="(2,) behind 3").name((4,), texts)
    (file,) = tmp_path.glob("tokens-*")
    file.write_bytes(file.read_bytes()[:200])
    assert replace(kept, _own=set(), _old=set()).get(name) is None, "half of it is nothing"


@pytest.mark.slow
def test_an_example_on_quad16() -> None:
    """The trained model, chunks beside up to two tokens, on the RTL; the others differ in nothing but their texts."""
    scenario = load(EXAMPLES / "burst.toml")
    run = served(scenario, "chunked", "verilator", "quad16")
    assert not run.reasons
    assert max(len(step.decodes) for step in run.steps) > 1
    assert [len(text.text) for text in run.texts] == [request.output for request in scenario.requests]
    assert run.figures.met == 4


def test_the_examples_fit_their_model() -> None:
    for path in EXAMPLES.glob("*.toml"):
        scenario = load(path)
        scenario.check(load_model(scenario.model))
        assert len(scenario.requests) > scenario.seats
