"""Generating text: every tensor right on the RTL, resumed to the same tokens, what cannot be is one line."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.workload.language import pretrained
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageError, load, model_of
from meshloom.sched.workload.language.rotary import Rotary
from meshloom.sched.workload.language.speculation import accept, guess
from meshloom.sched.workload.language.tokenizer import Characters
from meshloom.tb.devices.interface import Job
from meshloom.tb.results.language import LanguageResults
from meshloom.tb.runs.language import fitting
from meshloom.tb.runs.language.fitting import check_weights, end
from meshloom.tb.runs.language.generation import Generation, _grown, generate
from meshloom.tb.runs.language.shared import SharedDram
from meshloom.tb.runs.language.state import TextStateError
from meshloom.tb.runs.language.step import LanguageStep, least_cycles
from meshloom.tb.runs.network import PreparedNetwork, job
from meshloom.tb.runs.tokens.kept import KeptSteps

from ..sched.language_models import DECODERS, decoder, entries, random_model
from ..tiers import slow_but
from .command_line import invoke


def on_tiny(folder: Path, **changes: Any) -> Generation:
    base = Generation(random_model(), "abcde", 4, load_chip("tiny"), folder / "text.npz", chunk=4, device=None)
    return replace(base, **changes)


def test_every_tensor_of_every_step_is_right_on_the_rtl(tmp_path: Path) -> None:
    """Prefill in a chunk and a token, then decode; the same tokens and cycles as without a device."""
    results = generate(on_tiny(tmp_path, device="verilator"))
    assert results.ok, results.reasons
    assert results.bytes_checked > 4 * 1500
    assert (results.prefill.steps, results.prefill.tokens) == (2, 5)
    assert (results.decode.steps, results.decode.tokens) == (3, 3)
    assert results.decode.rtl_cycles == results.decode.model_cycles > results.decode.least_cycles > 0
    assert results.cache == "appended in place by the chip; stays in DRAM from program to program"
    first, later = results.prefill.host_bytes, results.decode.host_bytes
    assert first is not None
    assert later is not None
    assert 0 < later / 3 < first / 2 / 10  # inputs, and instructions with addresses in the cache
    model = generate(on_tiny(tmp_path, keep=tmp_path / "other.npz"))
    assert (model.text, model.decode.model_cycles) == (results.text, results.decode.model_cycles)
    assert model.decode.rtl_cycles is None


@pytest.mark.parametrize(
    ("prompt", "chunk", "news"),
    [
        ("abcdefg", 4, (4, 3)),
        pytest.param("abcde", 4, (4, 1), marks=pytest.mark.slow),
        pytest.param("abc", 16, (3,), marks=pytest.mark.slow),
        pytest.param("abcdefgh" * 2, 4096, (15, 1), marks=pytest.mark.slow),
    ],
)
def test_what_is_left_of_a_prompt_is_one_step(prompt: str, chunk: int, news: tuple[int, ...], tmp_path: Path) -> None:
    """It is read in fewer cycles than token by token, and says the same. A step looks at 15 tokens at most."""
    tokens = min(4, 17 - len(prompt))
    text, single = (
        on_tiny(tmp_path, prompt=prompt, chunk=size, tokens=tokens, keep=tmp_path / f"{size}.npz")
        for size in (chunk, 1)
    )
    assert text.news == news
    results, one_by_one = generate(text), generate(single)
    assert (results.prefill.steps, results.prefill.tokens) == (len(news), len(prompt))
    assert one_by_one.prefill.steps == len(prompt)
    assert results.prefill.model_cycles < one_by_one.prefill.model_cycles
    assert results.text == one_by_one.text


def test_the_cache_is_what_the_chip_has_left_in_dram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench hands out wrong bytes of the cache and of all products' weights from the second step on, which is
    another than the first, and of all constants from the third on: nobody loads them, and every byte is right."""
    steps = itertools.count()

    def damaged(prepared: PreparedNetwork, *others: Any) -> Job:
        whole, number = job(prepared, *others), next(steps)
        wrong = [
            number > 0 and (tensor.name.endswith(("/past", "/w")) or (number > 1 and tensor.role == "constant"))
            for tensor in prepared.network_schedule.schedule.tensors
            for _ in tensor.pieces
            if tensor.role != "output"
        ]
        pairs = zip(whole.memory, wrong, strict=True)
        return replace(whole, memory=[(tile, at, words ^ 0xFF if bad else words) for (tile, at, words), bad in pairs])

    monkeypatch.setattr("meshloom.tb.runs.language.comparison.job", damaged)
    results = generate(on_tiny(tmp_path, device="verilator"))
    assert results.ok, results.reasons
    assert next(steps) == 5
    assert results.text == generate(on_tiny(tmp_path, device=None, keep=tmp_path / "other.npz")).text


def test_a_wrong_byte_in_a_cache_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose cache lies elsewhere than it should reads other keys."""
    moved = LanguageStep._at
    monkeypatch.setattr(
        LanguageStep, "_at",
        lambda self, total: replace(moved(self, total), program=moved(self, min(16, total + 1)).program),
    )  # fmt: skip
    results = generate(on_tiny(tmp_path, device="verilator"))
    assert not results.ok
    assert results.mismatches
    assert "wrong bytes, first in plane" in results.first_mismatch
    assert len(results.text) <= 1
    assert not results.complete


def test_an_interrupted_text_goes_on_to_the_same_tokens(tmp_path: Path) -> None:
    def stop(text: str) -> None:
        raise KeyboardInterrupt

    whole = generate(on_tiny(tmp_path))
    cut = on_tiny(tmp_path, keep=tmp_path / "cut.npz")
    with pytest.raises(KeyboardInterrupt):
        generate(cut, on_token=stop)
    shown: list[str] = []
    again = generate(cut, on_begin=lambda text, new: shown.append(text), on_token=shown.append)
    assert shown[0] == "abcde" + whole.text[0]
    assert "".join(shown) == "abcde" + whole.text
    same = {"started", "checkpoint"}
    assert again.model_dump(exclude=same) == whole.model_dump(exclude=same)
    more = generate(replace(cut, tokens=6))  # the same checkpoint: behind the last
    assert more.text[:4] == whole.text
    assert more.decode.steps == 5
    with pytest.raises(TextStateError, match="was made with prompt = 'abcde', now it is 'abcdf'; name another"):
        generate(replace(cut, prompt="abcdf"))
    assert generate(replace(cut, prompt="abcdf", fresh=True)).prompt == "abcdf"


@pytest.mark.parametrize(
    ("right", "steps"), [pytest.param(3, 2, marks=pytest.mark.slow), (1, 4), pytest.param(0, 7, marks=pytest.mark.slow)]
)
def test_guesses_change_no_token(right: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three guesses so many are right. What the chip has appended for wrong ones is written over."""
    device = "verilator" if right == 1 else None
    plain = generate(on_tiny(tmp_path, tokens=8))
    tokens = random_model().tokens("abcde" + plain.text).tolist()

    def oracle(text: list[int], count: int) -> list[int]:
        assert text == tokens[: len(text)]
        follows = (tokens + [0] * count)[len(text) :][:count]
        return [token if at < right else (token + 1) % 5 for at, token in enumerate(follows)]

    monkeypatch.setattr("meshloom.tb.runs.language.generation.guess", oracle)
    results = generate(on_tiny(tmp_path, tokens=8, speculate=3, device=device, keep=tmp_path / "other.npz"))
    assert results.ok, results.reasons
    assert results.text == plain.text
    assert (results.decode.steps, results.decode.tokens) == (steps, 7)
    assert results.tokens_accepted == 7 - steps
    assert results.tokens_guessed == 3 * (steps - (right < 3))  # one token that is left needs none


@pytest.mark.parametrize("speculate", slow_but([0, 3], 3))
def test_a_text_ends_at_the_token_for_that(speculate: int, tmp_path: Path) -> None:
    """With guesses, too, of which a right one ends it; and gone on with, it has ended."""
    plain = generate(on_tiny(tmp_path, tokens=8, keep=tmp_path / "plain.npz"))
    model = random_model()
    written = model.tokens(plain.text).tolist()
    ends = (next(token for token in written if token != written[0]),)
    there = written.index(ends[0]) + 1
    text = on_tiny(tmp_path, model=replace(model, ends=ends), tokens=8, speculate=speculate)
    results = generate(text)
    assert (results.text, results.complete, results.ended) == (plain.text[:there], True, there < 8)
    assert results.decode.tokens == there - 1
    assert len(results.float_text) <= 8
    again = generate(replace(text, tokens=9))
    assert (again.text, again.decode) == (results.text, results.decode)


def test_no_schedule_is_below_all_elements_and_all_channels() -> None:
    chip = load_chip("quad8")
    elements, bytes_a_cycle = 4 * 8 * 8, chip.dram.bytes_per_cycle * len(chip.drams)
    assert least_cycles(10 * elements, 0, chip) == least_cycles(0, 10 * bytes_a_cycle, chip) == 10
    assert least_cycles(10 * elements + 1, 0, chip) == least_cycles(0, 10 * bytes_a_cycle + 1, chip) == 11
    assert least_cycles(3 * elements, 2 * bytes_a_cycle, chip) == 3


def test_guesses_are_what_followed_before() -> None:
    assert guess([7, 1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]
    assert guess([1, 2, 5, 1, 2, 6, 1, 2], 2) == [6, 1], "the nearest place"
    assert guess([3, 1, 2, 5, 1, 2, 6, 3, 1, 2], 2) == [5, 1], "the most tokens"
    assert guess([1, 2, 1, 2], 3) == [1, 2, 1], "round and round"
    assert guess([1, 2, 3], 2) == guess([1], 2) == guess([], 2) == []
    assert accept([4, 5], [4, 5, 6]) == [4, 5, 6]
    assert accept([4, 5], [4, 6, 7]) == [4, 6]
    assert accept([], [3]) == [3]


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    whole = on_tiny(tmp_path)
    generate(whole)
    with np.load(whole.keep) as file:
        arrays = dict(file)
    caches = [name for name in arrays if name.startswith("cache/")]
    for change, text in (
        ({"version": np.array(9)}, "is no checkpoint of a text .*version 9, this code reads 4"),
        ({"cache/0/k": np.zeros((16, 3), np.int8)}, "its cache is none of random"),
        ({name: np.concatenate([arrays[name]] * 2) for name in caches}, "its cache is none of random"),
        ({"tokens": np.zeros(1000, np.int64)}, "its cache is none of random"),
        ({"tokens": np.full(9, 50)}, "has tokens that random has not"),
    ):
        np.savez(whole.keep, allow_pickle=False, **(arrays | change))
        with pytest.raises(TextStateError, match=text):
            generate(whole)


@pytest.mark.parametrize("family", slow_but(DECODERS, "llama"))
def test_a_folder_of_transformers_writes_on_the_rtl(family: str, tmp_path: Path) -> None:
    """Prefill in chunks, decode with guesses: every byte and every cycle is right, and the text goes on with the
    prompt's."""
    model = pretrained.load(str(decoder(family, tmp_path)), context=24)
    text = Generation(model, "what light", 4, load_chip("tiny"), tmp_path / "text.npz", chunk=4, speculate=1)
    shown: list[str] = []
    results = generate(text, on_begin=lambda text, new: shown.append(text), on_token=shown.append)
    assert results.ok, results.reasons
    assert results.bytes_checked > 10_000
    assert results.prefill.tokens == text.read < len(text.prompt)
    assert "".join(shown) in (
        text.prompt + results.text,
        text.prompt + results.text.rstrip("\N{REPLACEMENT CHARACTER}"),
    )
    assert shown[0] == text.prompt
    assert len(shown) == 1 + text.tokens


@pytest.mark.slow
def test_words_that_convolutions_do_not_fill(tmp_path: Path) -> None:
    """A word has 16 channels, and convolutions make 14 of them: caches lie as these do."""
    chip = load_chip("pe12x14")
    able = chip.model_copy(update={"core": chip.core.model_copy(update={"vec_whole": True, "vec_table": True})})
    text, expected = (
        generate(on_tiny(tmp_path / name, chip=on)) for name, on in (("a", able), ("b", load_chip("tiny")))
    )
    assert text.text == expected.text


def test_what_decides_the_tokens_of_a_folder_is_in_its_checkpoint(tmp_path: Path) -> None:
    """The same weights with another configuration, or another text for the steps, are another model."""
    model = pretrained.load(str(decoder("llama", tmp_path)), context=24)
    base = Generation(model, "what light", 2, load_chip("tiny"), tmp_path / "text.npz")
    others = [
        replace(model, rotary=(Rotary((1.0, 0.1)),) * 2), replace(model, epsilon=0.1), replace(model, bare=True),
        replace(model, activation="gelu"), replace(model, score_cap=5.0), replace(model, output_cap=5.0),
        replace(model, calibration="the sun"), replace(model, longest=20), replace(model, heads=2),
    ]  # fmt: skip
    words = replace(model, tokenizer=Characters("what light"))
    weights = [replace(base, model=one).setting()["weights"] for one in (model, words, *others)]
    assert len(set(weights)) == len(weights)
    steps = [KeptSteps(integers(one), base.chip, {}, None)._model for one in (model, *others)]
    assert len(set(steps)) == len(steps)


def test_a_prompt_without_tokens(tmp_path: Path) -> None:
    """Some tokenizers have none for spaces."""

    class Words:
        size = 5

        def tokens(self, text: str) -> list[int]:
            return [0 for _ in text.split()]

        def text(self, tokens: Sequence[int]) -> str:
            return "a" * len(tokens)

    with pytest.raises(LanguageError, match="the prompt '  ' has no tokens in model random; give it a word"):
        generate(on_tiny(tmp_path, model=replace(random_model(), tokenizer=Words()), prompt="  "))


def test_half_a_character_is_not_shown() -> None:
    assert _grown("a", "a\N{REPLACEMENT CHARACTER}") == "a"
    assert _grown("a", "a\N{EURO SIGN}") == "a\N{EURO SIGN}"
    assert _grown("a ", "a") == "a ", "what has been shown stays"


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    for changes, text in (
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "abz"}, "model random has no token for 'z', character 3 of the text"),
        ({"speculate": 15}, "15 guesses behind a token are more than model random looks at in a step, which is 15"),
        ({"prompt": "a" * 14}, "14 tokens and 4 new ones are 17 tokens to look at, model random looks at 16"),
    ):
        with pytest.raises(LanguageError, match=text):
            generate(on_tiny(tmp_path, **changes))
    assert not list(tmp_path.iterdir())


def _with_words(chip: ChipConfig, words: int) -> ChipConfig:
    return chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": words})})


def test_the_words_of_dram_that_are_enough_are_said_at_once(tmp_path: Path) -> None:
    chip, numbers = load_chip("tiny"), integers(random_model())
    with pytest.raises(
        LanguageError, match="for weights, keys and values, and its program; chip tiny has 128"
    ) as refusal:
        LanguageStep(numbers, 1, _with_words(chip, 128), "loop_order:effort=quick")
    (words,) = re.findall(r"--set dram.words=(\d+)\)$", str(refusal.value))
    LanguageStep(numbers, 1, _with_words(chip, int(words)), "loop_order:effort=quick")


def test_a_step_without_room_for_its_records_is_refused_before_anything_runs(tmp_path: Path) -> None:
    chip, model = load_chip("tiny"), random_model()
    step = LanguageStep(integers(model), 1, chip, "loop_order:effort=quick")
    small = _with_words(chip, step.shared.begin + 1)
    with pytest.raises(LanguageError, match=r"words of each DRAM tile with the records of a run; chip tiny has \d+; "):
        LanguageStep(integers(model), 1, small, "loop_order:effort=quick").check_records()


@pytest.mark.parametrize("words", [1024, 1500])
def test_a_step_is_not_scheduled_again_for_its_need(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who refuses its tensors knows it, and who refuses its program."""
    prepare = Mock(wraps=fitting.prepare)
    monkeypatch.setattr(fitting, "prepare", prepare)
    with pytest.raises(LanguageError, match=r"\(--set dram.words="):
        LanguageStep(integers(random_model()), 1, _with_words(load_chip("tiny"), words), "loop_order:effort=quick")
    assert prepare.call_count == 1


def test_weights_that_are_more_than_the_dram_are_refused_before_anything_is_computed() -> None:
    model, chip = random_model(), load_chip("tiny")
    words = -(-model.weights // (chip.lanes * len(chip.drams)))
    check_weights(model, _with_words(chip, words), 8)
    check_weights(model, _with_words(chip, -(-words // 2)), 4)
    text = f"alone take {words} words of each DRAM tile; chip tiny has {words - 1}; give the chip's "
    with pytest.raises(LanguageError, match=text) as refusal:
        check_weights(model, _with_words(chip, words - 1), 8)
    (enough,) = re.findall(r"--set dram.words=(\d+)\)$", str(refusal.value))
    assert int(enough) >= 1.25 * words, "with room for keys, values and programs"


def test_steps_share_the_weights_of_products() -> None:
    """They lie where the first step has put them, and are there once one of the steps has run."""
    chip, numbers = load_chip("tiny"), integers(random_model())
    shared = SharedDram(chip)
    chunk, token = (LanguageStep(numbers, count, chip, "loop_order:effort=quick", shared=shared) for count in (4, 1))
    first, second = (step.prepared.network_schedule for step in (chunk, token))
    weights = [tensor for tensor in second.schedule.tensors if tensor.name.endswith("/w")]
    assert len(weights) == 7
    for tensor in weights:
        assert tensor.pieces == first.schedule.tensor(tensor.name).pieces
        assert first.constants[tensor.name] is second.constants[tensor.name]
    own = [piece for name in ("x", "keep") for piece in second.schedule.tensor(name).pieces]
    assert min(piece.address for piece in own) >= end(chunk.prepared, chip)
    places = {(piece.tile, piece.address, piece.words) for tensor in weights for piece in tensor.pieces}
    assert not places & {*chunk.stays(4, None)}
    shared.record(chunk._lasting)
    assert places <= {*token.stays(5, chunk)}
    assert not {*token._lasting} <= {*token.stays(5, chunk)}, "its code is not there"
    assert not places & {*token.stays(5, None)}, "nobody was there"
    small = _with_words(chip, shared.begin - 1)
    tight = SharedDram(small)
    tight.add(chunk.prepared)
    alone = LanguageStep(numbers, 1, small, "loop_order:effort=quick", shared=tight)
    assert alone.shared is not tight, "it lies in the place of the other one"
    assert not {*alone._lasting} & {*alone.stays(5, chunk)}


def test_a_context_that_fits_is_said() -> None:
    """Of a model whose context can be chosen: beside what a core lacks for the whole one."""
    model = replace(model_of("random", entries(width=8, context=32), "random.npz"), reach=32)
    chip = load_chip("tiny")
    small = chip.model_copy(update={"core": chip.core.model_copy(update={"a_words": 16})})
    with pytest.raises(LanguageError, match="the model looks at 32 tokens: take a shorter context, 16 fits"):
        LanguageStep(integers(model), 1, small, "loop_order:effort=quick")
    with pytest.raises(DoesNotFit):
        LanguageStep(integers(replace(model, reach=0)), 1, small, "loop_order:effort=quick")
    with pytest.raises(LanguageError, match=r"words of each DRAM tile.*, or take a shorter context"):
        LanguageStep(integers(model), 1, _with_words(chip, 128), "loop_order:effort=quick")


def test_a_long_text_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terminals break lines by themselves, files have none that the model did not write."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "long.npz", allow_pickle=False, **entries(context=96))
    prompt = "abc" * 30
    shown = invoke("generate", "long.npz", "--prompt", prompt, "--chip", "tiny", "--model", "--tokens", 1)
    assert prompt in shown.stdout, shown.stderr


@pytest.mark.parametrize("fresh", [False, True])
def test_the_command_begins_anew_only_if_it_is_told_to(
    fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "small.npz", allow_pickle=False, **entries())
    asked: list[Generation] = []

    def refuse(generation: Generation, *listeners: object) -> LanguageResults:
        asked.append(generation)
        raise LanguageError("not now")

    monkeypatch.setattr("meshloom.tb.runs.language.generation.generate", refuse)
    refused = invoke("generate", "small.npz", "--prompt", "abc", "--chip", "tiny", "--tokens", 2, *["--fresh"] * fresh)
    assert "not now" in refused.stderr
    assert [each.fresh for each in asked] == [fresh]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "small.npz", allow_pickle=False, **entries())
    command = ["generate", "small.npz", "--prompt", "abc", "--chip", "tiny", "--model", "--clock", "100"]
    shown = invoke(*command, "--tokens", 2, "--json", "a.json")
    assert shown.exit_code == 0, shown.stderr
    results = LanguageResults.model_validate_json(Path("a.json").read_text())
    assert "abc" + results.text in shown.stdout
    assert results.decode_ms == pytest.approx(results.decode.model_cycles / 1e5)
    assert json.loads(Path("a.json").read_text())["decode"]["cycles_per_token"] == results.decode.model_cycles
    for more, text in (
        (["--weight-bits", "5"], "5: weights have 4 or 8 bits"),
        (["--set", "core.int5=true"], "core.int5: there is no such field; did you mean int4?"),
        (["--tokens", "0"], "should be greater than or equal to 1"),
        (["--tokens", "99"], "3 tokens and 99 new ones are 101 tokens to look at"),
        (["--scheduler", "klotski"], "only loop_order knows what stays in DRAM"),
        (["--tokens", "2", "--checkpoint", "/dev/null"], "is no file that a later run could go on from"),
    ):
        refused = invoke(*command, *more)
        assert refused.exit_code == 2
        assert text in " ".join(refused.stderr.split()).replace("│ ", "").replace(" │", "")


def test_the_command_with_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    decoder("gpt2", tmp_path)
    Path("own.txt").write_text("what light is the sun? " * 20)
    command = ["generate", "gpt2", "--prompt", "what light", "--chip", "tiny", "--model"]
    shown = invoke(*command, "--tokens", 2, "--calibrate", "own.txt", "--context", 20, "--json", "a.json")
    assert shown.exit_code == 0, shown.stderr
    results = LanguageResults.model_validate_json(Path("a.json").read_text())
    assert (results.model, results.context, results.prompt) == ("gpt2", 20, "what light")
    for more, text in (
        (["--context", "49"], "the model looks at 48 tokens, a chip at 1023; take a context of 2 to 48, not 49"),
        (["--calibrate", "gpt2/model.safetensors"], "is no text in UTF-8"),
        (["--calibrate", "nothing.txt"], "nothing.txt: cannot be read (No such file or directory)"),
        (["--tokens", "60", "--context", "20"], "take fewer --tokens, or a larger context, up to 48"),
    ):
        refused = invoke(*command, *more)
        assert refused.exit_code == 2
        assert text in " ".join(refused.stderr.split()).replace("│ ", "").replace(" │", "")


@pytest.mark.slow
def test_the_trained_model_on_quad16(tmp_path: Path) -> None:
    text = Generation(load("shakespeare"), "ROMEO:\nI will not ", 3, load_chip("quad16"), tmp_path / "text.npz")
    results = generate(text)
    assert results.ok, results.reasons
    assert results.text == "the"
    assert results.agreement == 1
    assert results.perplexity < results.float_perplexity * 1.02 < 4.3
    assert results.decode.rtl_cycles == results.decode.model_cycles
