"""Scenarios of texts: what is read, traces in their published form, one line for each thing that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.sched.workload.arrivals import ScenarioError
from meshloom.sched.workload.language.model import LanguageError
from meshloom.sched.workload.texts import TextLimits, load

from ..language_models import random_model

HEAD = 'name = "a"\nmodel = "shakespeare"\n'
ONE = HEAD + "[[request]]\nprompt = 3\noutput = 2\n"
TRACE = HEAD + '[trace]\nfile = "a.csv"\ncycles_per_second = 10\n'
HEADS = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\n"


def written(folder: Path, text: str, trace: str | None = None) -> Path:
    path = folder / "a.toml"
    path.write_text(text)
    if trace is not None:
        (folder / "a.csv").write_text(trace)
    return path


def test_requests_come_in_order_of_arrival(tmp_path: Path) -> None:
    text = HEAD + "ttft_limit = 9\ntpot_limit = 8\n"
    text += '[[request]]\nprompt = "abc"\noutput = 2\narrival = [50, 5]\ntpot_limit = 3\n'
    text += "[[request]]\nprompt = 7\noutput = 1\narrival = { poisson = 1.0, number = 2, seed = 1, start = 6 }\n"
    scenario = load(written(tmp_path, text))
    assert (scenario.seats, scenario.chunk) == (4, 16)
    first, second, *_ = scenario.requests
    assert (first.arrival, first.prompt, first.output, first.text) == (5, 3, 2, "abc")
    assert first.limits == TextLimits(9, 3)
    assert second.arrival == 50
    assert [(one.prompt, one.limits, one.text) for one in scenario.requests[2:]] == [(7, TextLimits(9, 8), "")] * 2


def test_how_a_model_of_others_is_read(tmp_path: Path) -> None:
    """Tokens that it looks at, and a text beside the scenario."""
    own = 'context = 24\ncalibrate = "own.txt"\n'
    (tmp_path / "llama").mkdir()
    scenario = load(written(tmp_path, ONE.replace("shakespeare", "llama").replace("[[", own + "[[", 1)))
    assert scenario.source == (str(tmp_path / "llama"), tmp_path / "own.txt", 24)
    assert load(written(tmp_path, ONE)).source == ("shakespeare", None, 0)


def test_a_trace_as_it_is_published(tmp_path: Path) -> None:
    """By time, whatever the order of lines and columns; of other columns nothing counts, and time zones do."""
    trace = "ContextTokens,User,TIMESTAMP,GeneratedTokens\n"
    trace += "65,x,2024-05-10 00:00:01.500000+00:00,1\n64,y,2024-05-10 00:00:00.500000+00:00,33\n\n9,z,2024-05-10,2\n"
    text = TRACE + "rows = 2\nshrink = 32\nstart = 100\n"
    scenario = load(written(tmp_path, text, trace))
    assert [(one.arrival, one.prompt, one.output) for one in scenario.requests] == [(100, 1, 1), (105, 2, 2)]
    assert scenario.requests[1].where.endswith("a.csv, line 3")


@pytest.mark.parametrize(
    ("text", "trace", "wrong"),
    [
        ("name = [", None, r"a\.toml: "),
        (HEAD, None, r"there is no \[\[request\]\] and no \[trace\]; a scenario asks for one text at least"),
        (HEAD + "request = [1]\n", None, r"request 1 must be a table: \[\[request\]\]"),
        (HEAD + '[[network]]\nname = "resnet8"\n', None, "asks for networks; `meshloom serve` serves them"),
        (ONE.replace("3", "0"), None, "request 1: prompt"),
        (ONE.replace("3", "-3"), None, "request 1: prompt = -3 must be text, at least one character, or a number"),
        (ONE.replace("3", '""'), None, "request 1: prompt = '' must be text, at least one character, or a number"),
        (ONE.replace("3", "2.5"), None, "request 1: prompt = 2.5 must be text"),
        (ONE.replace("2", "-2"), None, "request 1: output"),
        (ONE + "arrival = -5\n", None, "request 1: arrival = -5 must be a cycle"),
        (ONE + 'arrival = { trace = "a.csv" }\n', None, "a trace of texts has a table of its own"),
        (ONE + "ttft_limit = 0\n", None, "request 1: ttft_limit"),
        (ONE + "arrival = [1, 2, 3, 4]\n", None, "asks for 4 texts; take at most 3"),
        (TRACE, None, r"a\.csv: cannot be read: No such file"),
        (TRACE, "", "line 1: column TIMESTAMP is missing or there twice; it names nothing"),
        (TRACE, "TIMESTAMP,ContextTokens\n", "column GeneratedTokens is missing or there twice; it names TIMESTAMP, "),
        (TRACE, HEADS, "the trace is empty; it has a line for the heads of its columns alone"),
        (TRACE, HEADS + "1,2\n", "line 2: '1,2' has fewer cells than line 1 has columns"),
        (TRACE, HEADS + "noon,3,4\n", "line 2: TIMESTAMP 'noon' is no time like 2023"),
        (TRACE, HEADS + ROW + ROW.replace("44", "-1"), "line 3: GeneratedTokens '-1' must be a whole number of tokens"),
        (TRACE, HEADS + ROW.replace("374", "0"), "line 2: ContextTokens '0' must be a whole number of tokens from 1"),
        (TRACE, HEADS + ROW + "2123-11-16 18:15:46,3,4\n", "arrives in cycle 31.*; take fewer rows, or fewer cycles"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, trace: str | None, wrong: str
) -> None:
    monkeypatch.setattr("meshloom.sched.workload.texts.MOST", 3)
    with pytest.raises(ScenarioError, match=wrong) as error:
        load(written(tmp_path, text, trace))
    assert "\n" not in str(error.value)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "a.toml").write_bytes(b"\xff")
    with pytest.raises(ScenarioError, match="is not UTF-8 text"):
        load(tmp_path / "a.toml")
    written(tmp_path, TRACE)
    (tmp_path / "a.csv").write_bytes(b"\xff\xff")
    with pytest.raises(ScenarioError, match="is no CSV file"):
        load(tmp_path / "a.toml")


def test_the_context_has_no_room(tmp_path: Path) -> None:
    model = random_model()  # looks at 16 characters, a to h
    for text, wrong in (
        (ONE, "chunk = 16: model random looks at 16 tokens; take at most 15"),
        (ONE.replace("3", "17"), "request 1: a prompt of 17 tokens is longer than the context of model random, 16"),
        (
            ONE.replace("3", "16"),
            "a prompt of 16 tokens and an output of 2 are 17 tokens to look at, model random",
        ),
        (ONE.replace("3", '"xyz"'), "model random has no token for 'x'"),
    ):
        scenario = load(written(tmp_path, text if text is ONE else text.replace(HEAD, HEAD + "chunk = 4\n")))
        with pytest.raises((ScenarioError, LanguageError), match=wrong):
            scenario.check(model)
    load(written(tmp_path, ONE.replace(HEAD, HEAD + "chunk = 4\n").replace("3", "15"))).check(model)
