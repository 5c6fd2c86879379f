"""Files that are damaged, hostile or something else: a result, or one error of ours, and no other exception."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshloom.sched.support.reading import parse_json, parse_toml
from meshloom.sched.support.text import bounded
from meshloom.tb.verify.parsers.readers import PARSERS, TOPOLOGY, problem

from .command_line import invoke

#: Findings of campaigns, as files.
CORPUS = Path(__file__).with_name("parser_corpus")
#: What breaks parsers.
JUNK = (
    b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"[" * 3000, b"{" * 3000, b'{"a":' * 3000, b"9" * 5000, b"-1", b"1e999",
    b"NaN", b"Infinity", b"null", b"true", b'""', b'"\\ud800"', b"'", b'"', b"\n", b",", b"=", b"\x1b[31m", b"x" * 5000,
)  # fmt: skip


#: Those that take anything for what it is.
PATIENT = ("labels", "frames")


def _damaged(text: bytes, cuts: list[tuple[int, int, int]]) -> bytes:
    """The text with some stretches replaced: where (in thousandths), how long, by which junk."""
    for place, length, junk in cuts:
        begin = place * len(text) // 1000
        text = text[:begin] + JUNK[junk] + text[begin + length :]
    return text


DAMAGE = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 12), st.integers(0, len(JUNK) - 1)), min_size=1, max_size=3
)


def _fuzz(kind: str, folder: Path, examples: int) -> None:
    parser = PARSERS[kind]
    path, good = parser.file(folder), list(parser.seeds())

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])  # fmt: skip
    @given(number=st.integers(0, len(good) - 1), cuts=DAMAGE)
    def run(number: int, cuts: list[tuple[int, int, int]]) -> None:
        path.write_bytes(_damaged(good[number], cuts))
        problem(parser, path)

    run()


@pytest.mark.parametrize("kind", PARSERS)
def test_good_files_are_read_and_damaged_ones_refused(kind: str, tmp_path: Path) -> None:
    parser = PARSERS[kind]
    path = parser.file(tmp_path)
    for content in parser.seeds():
        path.write_bytes(content)
        assert problem(parser, path) == ""
    for junk in JUNK:
        path.write_bytes(junk)
        assert problem(parser, path) or kind in PATIENT, junk[:20]
    _fuzz(kind, tmp_path, 15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARSERS)
def test_files_damaged_in_many_ways(kind: str, tmp_path: Path) -> None:
    _fuzz(kind, tmp_path, 250)


@pytest.mark.parametrize("kind", PARSERS)
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    parser = PARSERS[kind]
    folder = tmp_path / f"folder.{parser.suffix}"
    folder.mkdir()
    for path in (folder, tmp_path / f"none.{parser.suffix}", tmp_path / f"{'n' * 300}.{parser.suffix}"):
        assert problem(parser, path)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_a_campaign_once_failed_on(path: Path, tmp_path: Path) -> None:
    """Findings of `make parsers`: each is named after its parser."""
    parser = PARSERS[path.name.partition("-")[0].replace("_", " ")]
    file = parser.file(tmp_path)
    file.write_bytes(path.read_bytes())
    assert problem(parser, file)


def _hostile() -> Iterator[tuple[str, str, str]]:
    yield "chips", "d.toml", "a = " + "[" * 100_000
    yield "chips", "i.toml", "lanes = " + "9" * 100_000
    yield "chips", "k.toml", "k" * 100_000 + " = 1"
    yield "chips", "v.toml", f'name = "{"v" * 100_000}"'
    yield "sweep", "d.toml", "a = " + "[" * 100_000
    yield "sweep", "c.toml", f'name = "s"\nchips = ["{"c" * 100_000}"]\nworkloads = ["gemm:4x4x4"]'
    yield "sweep", "w.toml", f'name = "s"\nchips = ["tiny"]\nworkloads = ["gemm:{"9" * 100_000}x4x4"]'
    yield "explain", "n.json", "[" * 100_000
    yield "check", "n.json", "[" * 100_000
    yield "check", "l.json", json.dumps({"version": 1, "operations": [{"kind": "k" * 100_000}]})
    yield "workloads", "n.csv", TOPOLOGY.decode() + f"{'n' * 100_000},8,{'9' * 100_000},3,3,1,1,1,\n"


@pytest.mark.parametrize(("command", "name", "text"), list(_hostile()), ids=lambda each: each[:12])
def test_one_short_line_for_a_hostile_file(command: str, name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    result = invoke(command, path)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert "this is a bug" not in result.output
    assert len(result.output) < 2000
    lines = 9 if name == "w.toml" else 1  # with the syntax of shapes
    assert result.output.count("\n") == lines


@pytest.mark.parametrize("text", ["gemm:" + "9" * 9000 + "x1x1", "gemm:1x1x1,clamp" + "9" * 9000, "x" * 100_000])
def test_endless_names_of_workloads(text: str) -> None:
    result = invoke("workloads", text)
    assert result.exit_code == 2
    assert "this is a bug" not in result.output
    assert len(result.output) < 4000


def test_reasons_are_short() -> None:
    for read, text in ((parse_json, "[" * 100_000), (parse_json, "9" * 5000), (parse_toml, "a=" + "9" * 5000)):
        with pytest.raises(ValueError, match=r"nested too deeply|thousands of digits"):
            read(text)
    assert parse_json('\ufeff{"a": 1}') == {"a": 1}
    assert parse_toml("\ufeffa = 1") == {"a": 1}


def test_messages_are_bounded_and_paths_stay_whole() -> None:
    path = "/" + "/".join(["folder"] * 40)
    assert bounded(f"{path}: is a folder") == f"{path}: is a folder"
    assert re.fullmatch(r"a x{60}\.\.\. \(1,000 characters\) b", bounded(f"a {'x' * 1000} b"))
    assert len(bounded("ab " * 100_000)) < 5000
