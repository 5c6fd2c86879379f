"""`meshloom cache`: what it shows, what it removes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from meshloom.sched.store import cache, use
from meshloom.sched.store.kinds import KINDS
from meshloom.sched.store.store import Store, key
from meshloom.tb.cli import cache as command
from meshloom.tb.cli.main import app
from meshloom.tb.results import json_schemas
from meshloom.tb.results.exits import Exit


def invoke(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(app, ["cache", *arguments], input=input)


def check_form(value: object) -> None:
    """Whether what was written as JSON is as its schema says."""
    from jsonschema import Draft202012Validator

    Draft202012Validator(json_schemas.cache()).validate(value)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a simulator of 30 days, another of one day, and two values."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.delenv("MESHLOOM_CACHE_MB", raising=False)
    for name, days in (("old", 31), ("new", 1)):
        place = tmp_path / "simulators" / name
        place.mkdir(parents=True)
        (place / "bench").write_bytes(bytes(1_500_000))
        then = time.time() - days * 86_400
        os.utime(place, (then, then))
    for number in range(2):
        Store(tmp_path / "schedules").put(key("x", of=str(number)), b"found")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("arguments", [(), ("show",)])
def test_it_shows_each_kind(root: Path, arguments: tuple[str, ...]) -> None:
    shown = invoke(*arguments)
    assert shown.exit_code == 0
    (line,) = [line for line in shown.output.splitlines() if "simulators of chips" in line]
    assert re.findall(r"[\d,.]+ MB|\d+ d ago", line) == [
        "3.0 MB",
        "8,000.0 MB",
        "31 d ago",
        "1 d ago",
    ]
    assert all(kind.name in shown.output for kind in KINDS)
    assert f"root: {root}, 3.0 MB" in shown.output


def test_as_json_on_stdout_alone(root: Path) -> None:
    assert use.keep(root / "simulators" / "new")
    shown = invoke("--json", "-")
    value = json.loads(shown.stdout)
    check_form(value)
    assert value["root"] == str(root)
    kinds = {row["kind"]: row for row in value["kinds"]}
    assert list(kinds) == [kind.name for kind in KINDS]
    one = kinds["simulators"]
    assert (one["entries"], one["bytes"], one["in_use"], one["limit_bytes"]) == (2, 3_000_000, 1, 8_000_000_000)
    assert time.time() - one["oldest_use"] == pytest.approx(31 * 86_400, abs=600)
    assert kinds["soak"]["oldest_use"] is None
    assert value["bytes"] == sum(row["bytes"] for row in value["kinds"])
    assert "root:" in shown.stderr


def test_json_goes_to_a_file_too(root: Path, tmp_path: Path) -> None:
    assert invoke("show", "--json", str(tmp_path / "out.json")).exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text())["root"] == str(root)
    (tmp_path / "file").touch()
    refused = invoke("--json", str(tmp_path / "file" / "out.json"))
    assert refused.exit_code == Exit.NOT_WRITTEN
    assert "out.json: cannot be written: Not a directory; name another place" in refused.stderr


def test_nothing_there_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "nowhere"))
    assert invoke().exit_code == 0
    cleaned = invoke("clean")
    assert (cleaned.exit_code, cleaned.output) == (0, "removed 0 entries, 0.0 MB\n")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("width", ["40", "80"])
def test_narrow_terminals_see_every_figure(root: Path, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = [line for line in invoke().output.splitlines() if not line.startswith("root:")]
    assert max(map(len, lines)) <= int(width)
    text = "\n".join(lines)
    assert "…" not in text
    for figure in ("3.0 MB", "8,000.0 MB", "31 d ago", "waves, logs of simulators that died"):
        assert figure in text


# -- clean ------------------------------------------------------------------------------------------------------------


def test_clean_removes_what_is_not_in_use(root: Path) -> None:
    assert use.keep(root / "simulators" / "new")
    cleaned = invoke("clean", "--yes")
    assert (cleaned.exit_code, cleaned.output) == (0, "removed 3 entries, 1.5 MB; 1 in use kept\n")
    assert names(root / "simulators") == ["new"]
    assert names(root / "schedules") == []


def test_clean_removes_one_kind_of_one_age(root: Path) -> None:
    value = json.loads(invoke("clean", "simulators", "--older-than", "30d", "--yes", "--json", "-").stdout)
    check_form(value)
    assert (value["removed"], value["bytes"], value["in_use"]) == (1, 1_500_000, 0)
    assert [kind["kind"] for kind in value["kinds"]] == ["simulators"]
    assert names(root / "simulators") == ["new"]
    assert len(names(root / "schedules")) == 2
    assert invoke("clean", "simulators", "--older-than", "3w", "-y").output == "removed 0 entries, 0.0 MB\n"


def test_clean_asks_a_person_and_nobody_else(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = invoke("clean")
    assert refused.exit_code == Exit.BAD_INPUT
    assert "remove 4 entries" in refused.stderr
    assert "no terminal to ask on" in refused.stderr.replace("│", " ")
    monkeypatch.setattr(command, "_person", lambda: True)
    result = invoke("clean", input="n\n")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "removed 0 entries, 0.0 MB")
    assert len(names(root / "simulators")) == 2
    assert invoke("clean", input="y\n").exit_code == 0
    assert names(root / "simulators") == []


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1y", "٣d", "1e3d"])
def test_what_is_no_age_is_refused(root: Path, age: str) -> None:
    refused = invoke("clean", f"--older-than={age}", "--yes")
    assert refused.exit_code == Exit.BAD_INPUT
    assert "is not an age such as 12h, 30d or 4w" in " ".join(refused.stderr.replace("│", " ").split())
    assert len(names(root / "simulators")) == 2


def test_a_kind_that_is_unknown_is_told_what_was_meant(root: Path) -> None:
    refused = invoke("clean", "simulatrs", "--yes")
    assert refused.exit_code == Exit.BAD_INPUT
    assert "did you mean simulators?" in " ".join(refused.stderr.replace("│", " ").split())
    refused = invoke("clean", "everything", "--yes")
    assert "there are simulators, blocks, meshes, schedules" in " ".join(refused.stderr.replace("│", " ").split())


def test_a_limit_that_is_no_number_is_bad_input(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE_MB", "lots")
    shown = invoke()
    assert shown.exit_code == Exit.BAD_INPUT
    assert "MESHLOOM_CACHE_MB = 'lots' must be a whole number" in shown.stderr
    run = CliRunner().invoke(app, ["run", "gemm:8x8x8", "--chip", "tiny"])
    assert (run.exit_code, run.stdout) == (Exit.BAD_INPUT, ""), "nothing has been run"
    assert "MESHLOOM_CACHE_MB = 'lots' must be a whole number" in run.stderr


def test_what_cannot_be_removed_is_named_and_the_rest_goes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name == "old":
            raise PermissionError(13, "Permission denied", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    cleaned = invoke("clean", "--yes")
    assert cleaned.exit_code == Exit.TOOL
    assert "1 could not be removed" in cleaned.stderr
    assert "old: Permission denied" in cleaned.stderr
    assert names(root / "simulators") == ["old"]
    assert names(root / "schedules") == []


def test_options_of_show_belong_behind_their_command(root: Path) -> None:
    assert invoke("--json", "-", "clean", "--yes").exit_code == Exit.BAD_INPUT
    assert len(names(root / "simulators")) == 2
