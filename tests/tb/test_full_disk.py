"""A full disk, and one on which nothing may be written, under builds, simulators, tools and standard output."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshloom.hw.assembly import verilog
from meshloom.hw.spec.config import load
from meshloom.sched.store.room import full_place, unwritten
from meshloom.sched.store.store import Recipe, Store, StoreError
from meshloom.sched.support.files import WriteError
from meshloom.tb.build.builder import BuildError
from meshloom.tb.build.compiling import Compiler, CompilerError
from meshloom.tb.build.runtime import OBJECTS, runtime
from meshloom.tb.build.tools import check_room
from meshloom.tb.cli.main import app
from meshloom.tb.cli.outputs import STDOUT, put
from meshloom.tb.devices.folders import RunsError, claim, room_in
from meshloom.tb.devices.interface import DeviceError
from meshloom.tb.results.events import Event, Unwritten
from meshloom.tb.results.exits import Exit, expected
from meshloom.tb.results.identity import sources
from meshloom.tb.results.shelf import cached
from meshloom.tb.runs.export.folder import write_folder
from meshloom.tb.runs.sweeps import cluster
from meshloom.tb.runs.sweeps import evaluate as evaluating
from meshloom.tb.runs.sweeps.evaluate import Batch, Task

NO_ROOM = os.strerror(errno.ENOSPC)
#: Where not even root may write, on any Linux.
FORBIDDEN = Path("/sys/meshloom")


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, NO_ROOM)


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk is full."""
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=4096))


# -- builds -----------------------------------------------------------------------------------------------------------


def scripted(folder: Path, text: str) -> Compiler:
    """A compiler that is this shell script."""
    folder.mkdir()
    (folder / "cc").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "cc").chmod(0o755)
    return Compiler([], ["cc"], {"PATH": f"{folder}:/usr/bin:/bin"}, folder, {"tools": "scripts"})


def test_a_build_without_room_says_so_and_one_with_room_succeeds(tmp_path: Path) -> None:
    lacking = scripted(tmp_path / "a", f"echo 'fatal error: error writing x.o: {NO_ROOM}'; exit 2")
    with pytest.raises(
        StoreError, match=f"{NO_ROOM}: blocks are built in {tmp_path}/blocks; free disk space"
    ) as caught:
        runtime(tmp_path, lacking, tmp_path, print)
    assert (pair := expected(caught.value)) is not None
    assert pair[1] is Exit.NOT_WRITTEN
    wrapped = BuildError("verilator did not build tiny")
    wrapped.__cause__ = caught.value
    assert expected(wrapped) == ("verilator did not build tiny", Exit.NOT_WRITTEN)
    working = scripted(tmp_path / "b", f"touch {' '.join(OBJECTS)}")
    assert all((runtime(tmp_path, working, tmp_path, print) / name).exists() for name in OBJECTS)


def test_a_build_that_fails_otherwise_is_the_tool_s_failure(tmp_path: Path) -> None:
    with pytest.raises(CompilerError, match="the compiler failed on Verilator's runtime") as caught:
        runtime(tmp_path, scripted(tmp_path / "a", "echo 'syntax error'; exit 2"), tmp_path, print)
    assert expected(caught.value) == (str(caught.value), Exit.TOOL)


def test_what_a_tool_had_no_room_to_print_is_seen_by_the_disk(tmp_path: Path, scarce: None) -> None:
    with pytest.raises(WriteError, match=f"{tmp_path}: cannot be written: {NO_ROOM}; make room there"):
        check_room(tmp_path, tmp_path / "empty.log")


@pytest.mark.parametrize(("megabytes", "room"), [(15, False), (17, True)])
def test_a_tool_that_fails_with_room_to_spare_fails_otherwise(
    megabytes: int, room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a compiler had written is gone by then: 16 MB free were too few."""
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=megabytes << 20))
    if room:
        check_room(tmp_path)
    else:
        with pytest.raises(WriteError, match=f"{tmp_path}: cannot be written: {NO_ROOM}; make room there"):
            check_room(tmp_path)


def test_what_a_store_cannot_write_itself_has_the_same_status(tmp_path: Path) -> None:
    recipe = Recipe("thing-1", full, ())
    for place, why in ((tmp_path / "blocks", NO_ROOM), (FORBIDDEN / "blocks", "")):
        with pytest.raises(StoreError, match=f"{why}: blocks are built in {place}") as caught:
            Store(place).build(recipe)
        assert (pair := expected(caught.value)) is not None
        assert pair[1] is Exit.NOT_WRITTEN
    assert not [path for path in (tmp_path / "blocks").iterdir() if path.is_dir() and path.name != ".locks"]


def test_verilog_that_was_cut_off_is_not_taken() -> None:
    """Yosys does not notice that the disk is full."""
    with pytest.raises(OSError, match=NO_ROOM) as caught:
        verilog.by_yosys("", "write_rtlil target", "endmodule")
    assert unwritten(caught.value) is not None


# -- simulators -------------------------------------------------------------------------------------------------------


def test_a_simulator_runs_where_it_may_write(tmp_path: Path) -> None:
    """A cache that is shared and read-only holds what was built, and nothing else is needed of it."""
    texts: list[str] = []
    claimed = claim("run", FORBIDDEN / "runs", texts.append)
    try:
        assert claimed.folder.is_dir()
        assert texts == [f"simulating in {claimed.folder}, because nothing can be written in {FORBIDDEN}/runs"]
    finally:
        claimed.release(keep=False)
    assert not claimed.folder.exists()


def test_no_room_for_a_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshloom.tb.devices.folders.tempfile.mkdtemp", full)
    with pytest.raises(RunsError, match=f"{NO_ROOM}: simulators run below {tmp_path}") as caught:
        claim("run", tmp_path)
    assert (pair := expected(caught.value)) is not None
    assert pair[1] is Exit.NOT_WRITTEN


@pytest.mark.parametrize(
    "error", [DeviceError("it ended"), ValueError("bytes"), OSError("5 of 9 written"), OSError(28, NO_ROOM)]
)
def test_whatever_a_full_disk_does_to_a_run_is_said_as_that(error: Exception, tmp_path: Path, scarce: None) -> None:
    with (
        pytest.raises(RunsError, match=f"^{tmp_path}: cannot be written: {NO_ROOM}") as caught,
        room_in(tmp_path / "x"),
    ):
        raise error
    assert (pair := expected(caught.value)) is not None
    assert pair[1] is Exit.NOT_WRITTEN


def test_where_there_is_room_a_run_fails_as_it_did(
    tmp_path: Path, scarce: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = WriteError(errno.ENOSPC, NO_ROOM, "checkpoint.npz")
    with pytest.raises(WriteError, match="checkpoint"), room_in(tmp_path):
        raise other
    monkeypatch.undo()
    with pytest.raises(DeviceError), room_in(tmp_path):
        raise DeviceError("it ended")


# -- rows of sweeps, standard output, anything else -------------------------------------------------------------------


def test_a_full_disk_ends_a_sweep_and_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row would be kept: the point would count as done. The error comes back from a worker, as dask sends it."""
    task = Task(key="k", scheduler="loop_order", workload="gemm:4x4x4", parameters="{}", code="")
    batch = Batch(sources=sources(), chip=load("tiny"), device="verilator", tasks=(task,))

    def opened(*_: object) -> None:
        at = WriteError(errno.ENOSPC, NO_ROOM, "blocks")
        raise BuildError("nothing was built") from at

    monkeypatch.setattr(evaluating, "_DEVICES", {})  # an earlier test may have left one of this chip
    monkeypatch.setattr(evaluating, "find_device", lambda name: SimpleNamespace(open=opened, version=lambda: ""))
    with pytest.raises(WriteError) as caught:
        evaluating.evaluate(batch.model_dump_json())
    from distributed.core import clean_exception, error_message  # a third of a second to import

    message: Any = error_message(caught.value)
    _, sent, _ = clean_exception(message["exception"].data)
    lost: Any = SimpleNamespace(exception=lambda: sent)
    with pytest.raises(WriteError, match=f"blocks: cannot be written: {NO_ROOM}"):
        cluster._finished(lost, batch, print)


@contextlib.contextmanager
def printing_to_a_full_disk() -> Iterator[None]:
    with (
        contextlib.suppress(OSError),  # what is left is written when it is closed
        Path("/dev/full").open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        yield


def test_standard_output_that_cannot_be_written_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["chips"], ["--help"], ["chips", "--help"]):
        with printing_to_a_full_disk(), pytest.raises(SystemExit) as caught:
            app(arguments)
        assert caught.value.code == Exit.NOT_WRITTEN
        text = capsys.readouterr().err
        assert text == f"error: standard output: cannot be written: {NO_ROOM}; make room there, or name another place\n"
    with printing_to_a_full_disk(), pytest.raises(WriteError, match="standard output: cannot be written"):
        put(STDOUT, "something")


def test_a_file_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system only if it cannot be opened, not if it is written to."""

    def too_large(*_: object) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(Path, "write_text", too_large)
    with pytest.raises(OSError, match=r"meshloom_.*/source") as caught:
        verilog.by_yosys("", "", "")
    pair = expected(caught.value)
    assert pair is not None
    assert "/source: cannot be written: File too large; raise the limit on the size of files (ulimit -f)" in pair[0]
    monkeypatch.setattr(os, "fsync", too_large)
    with pytest.raises(WriteError, match="out/a/b: cannot be written: File too large"):
        write_folder(tmp_path / "out", {"a/b": b"1"})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_found_among_the_places_that_commands_write_to(tmp_path: Path, scarce: None) -> None:
    assert full_place(tmp_path / "absent", tmp_path) is not None
    pair = expected(OSError(errno.ENOSPC, NO_ROOM))
    assert pair == (f"{Path.cwd()}: cannot be written: {NO_ROOM}; make room there, or name another place", 5)


def test_artefacts_that_a_read_only_cache_cannot_take_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    monkeypatch.setenv("MESHLOOM_CACHE", str(FORBIDDEN))
    assert cached("run", events.append) is None
    (note,) = events
    assert isinstance(note, Unwritten)
    assert note == Unwritten(
        "this run", f"nothing can be written in {FORBIDDEN}/artefacts; --artefacts keeps it", required=False
    )


def test_an_error_that_is_its_own_cause_ends_the_search() -> None:
    own = ValueError("mine")
    own.__cause__ = own
    assert unwritten(own) is None
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert unwritten(first) is None
