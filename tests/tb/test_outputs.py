"""Every option that names a file to write: what is no regular file stays what it is, a full disk is one error."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from meshloom.hw.assembly import verilog
from meshloom.sched.workload import trainable
from meshloom.tb.build import verilog_files
from meshloom.tb.build.fpga import bitstream as bitstreams
from meshloom.tb.build.fpga.bitstream import Bitstream, BitstreamRequest
from meshloom.tb.build.fpga.layout import FpgaLayout
from meshloom.tb.cli.main import app
from meshloom.tb.results.exits import Exit
from meshloom.tb.results.language import LanguageResults
from meshloom.tb.results.scenario import Metrics, ScenarioFigures, ScenarioResults
from meshloom.tb.results.sweep import PointRow
from meshloom.tb.results.tokens import TokenRun
from meshloom.tb.results.training import TrainingResults
from meshloom.tb.runs.language import generation
from meshloom.tb.runs.language.state import first_state
from meshloom.tb.runs.language.state import save as save_text
from meshloom.tb.runs.online import serve as serving
from meshloom.tb.runs.sweeps import cluster
from meshloom.tb.runs.sweeps.evaluate import Batch, Done, evaluate
from meshloom.tb.runs.sweeps.store import Store
from meshloom.tb.runs.tokens import serve as tokens
from meshloom.tb.runs.training import run as training
from meshloom.tb.runs.training.state import begun, save

from .command_line import invoke, row
from .test_cli_files import saved_schedule

#: Options with paths of files that are read.
READ = {"--input", "--calibrate", "--labels", "--energy", "--folder"}
ROOM = "No space left on device; make room there, or name another place"


@dataclass(frozen=True)
class Output:
    """An option that names a file, or the folder of one. `option`: with {} for the path, if that is not all of it;
    `file`: what is written in the folder; `read`: it is read again, so it can be a regular file only."""

    arguments: str
    option: str
    name: str
    file: str = ""
    read: bool = False

    def command(self, place: Path) -> list[str]:
        option, _, form = self.option.partition(" ")
        return [*self.arguments.split(), option, (form or "{}").format(place)]


ARENA = "arena --entry loop_order:effort=0.01 --workload gemm:4x4x4 --chip tiny --predict --jobs 1"
QUERY = "query rows --pareto cycles,dram_bytes"
#: Commands that list things.
LISTS = ("runs", "schedulers", "chips", "workloads", "devices", "studies", "doctor")
TRAIN = "train digits --chip quad8 --steps 1 --model"
GENERATE = "generate shakespeare --prompt ROMEO --chip tiny --tokens 1 --model"
TIMELOOP = Path(__file__).parents[2] / "examples" / "mappings" / "timeloop" / "tiny" / "gemm_32x32x32.map.yaml"
CONFIGURATION = Path(__file__).parents[2] / "examples" / "mappings" / "scalesim" / "tiny" / "gemm_32x32x32" / "tiny.cfg"
TRAFFIC = Path(__file__).parents[2] / "examples" / "traffic" / "crossing.json"
OUTPUTS = {
    ("run", "--json"): [Output("run gemm:8x8x8 --chip tiny", "--json", "a.json")],
    ("run", "--csv"): [
        Output("run gemm:8x8x8 --chip tiny", "--csv", "a.csv"),
        Output("run gemm:8x8x8 --chip tiny", "--csv", "a.parquet"),
    ],
    ("run", "--report"): [Output("run gemm:8x8x8 --chip tiny", "--report junit={}", "a.xml")],
    ("explain", "--json"): [Output("explain copy.json", "--json", "a.json")],
    ("compare", "--json"): [Output("compare copy.json other.json", "--json", "a.json")],
    ("compare", "--out"): [Output("compare copy.json other.json", "--out", "a.html")],
    ("report", "--out"): [Output("report copy.json", "--out", "a.html")],
    ("report", "--trace"): [
        Output("report copy.json", "--trace", "a.json"),
        Output("report copy.json", "--trace", "a.json.gz"),
    ],
    ("serve", "--json"): [Output("serve one.toml --chip lp9 --model", "--json", "a.json")],
    ("serve", "--gantt"): [Output("serve one.toml --chip lp9 --model", "--gantt", "a.svg")],
    ("serve-tokens", "--json"): [Output("serve-tokens texts.toml --chip tiny --model", "--json", "a.json")],
    ("train", "--json"): [Output(TRAIN, "--json", "a.json")],
    ("train", "--checkpoint"): [Output(TRAIN, "--checkpoint", "a.npz", read=True)],
    ("generate", "--json"): [Output(GENERATE, "--json", "a.json")],
    ("generate", "--checkpoint"): [Output(GENERATE, "--checkpoint", "a.npz", read=True)],
    ("sweep", "--out"): [Output("sweep sweep.toml --jobs 1", "--out", "out", file="made.parquet", read=True)],
    ("sweep", "--plot"): [Output("sweep sweep.toml --jobs 1 --out rows", "--plot", "a.png")],
    ("arena", "--json"): [Output(ARENA, "--json", "a.json")],
    ("arena", "--out"): [Output(ARENA, "--out", "a.html")],
    ("arena", "--rows"): [Output(f"{ARENA} --json b.json", "--rows", "out", file="made.parquet", read=True)],
    ("query", "--out"): [Output(QUERY, "--out", f"a.{end}") for end in ("csv", "parquet", "svg", "png")],
    ("schedule", "--out"): [
        Output("schedule gemm:4x4x4 --chip tiny", "--out", "a.json"),
        Output("schedule two.csv --chip tiny", "--out", "out", file="two.csv_a.json"),
    ],
    ("schedule", "--program"): [Output("schedule gemm:4x4x4 --chip tiny", "--program", "a.bin")],
    ("import", "--out"): [
        Output(f"import timeloop {TIMELOOP} --chip tiny --workload gemm:32x32x32", "--out", "a.json"),
    ],
    ("import-chip", "--out"): [Output(f"import-chip scalesim {CONFIGURATION}", "--out", "a.toml")],
    ("export-chip", "--out"): [Output("export-chip tiny --as zigzag", "--out", "out", file="tiny.yaml")],
    ("noc replay", "--json"): [Output(f"noc replay {TRAFFIC}", "--json", "a.json")],
    ("export", "--out"): [Output("export gemm:4x4x4 --chip tiny", "--out", "out", file="program.bin", read=True)],
    ("bitstream", "--out"): [Output("bitstream --chip tiny", "--out", "out", file="tiny.bit")],
    ("verilog", "--out"): [Output("verilog --chip tiny", "--out", "out", file="tiny.v")],
    ("schemas", "--out"): [Output("schemas", "--out", "out", file="chip.schema.json")],
    **{(name, "--json"): [Output(name, "--json", "a.json")] for name in LISTS},
    ("cache", "--json"): [Output("cache", "--json", "a.json")],
    ("cache show", "--json"): [Output("cache show", "--json", "a.json")],
    ("cache clean", "--json"): [Output("cache clean --yes --older-than 9999w", "--json", "a.json")],
}
EVERY = {" ".join([*key, each.name]): each for key, some in OUTPUTS.items() for each in some}
#: One of each kind of writing for what is slow to try with all: a text, bytes, a picture, a table, several files.
SOME = ("run --json a.json", "schedule --program a.bin", "query --out a.svg", "query --out a.csv", "schemas --out out")


def cases(*first: str, again: bool = True) -> list[Any]:
    """Every output, if not `again` without those that are read again; all but `first` are slow, if these are named."""
    return [
        pytest.param(each, id=name, marks=[pytest.mark.slow] if first and name not in first else [])
        for name, each in EVERY.items()
        if again or not each.read
    ]


def options(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every command with each of its options that takes a path."""
    for sub, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*name, sub))
    for one in command.params:
        kind = getattr(one, "type_descriptor", None)
        if one.param_type_name == "option" and ("Path" in str(kind and kind.annotation) or "PATH" in str(one.metavar)):
            yield " ".join(name), one.opts[0]


def test_every_option_with_a_path_is_here() -> None:
    assert {each for each in options(typer.main.get_command(app)) if each[1] not in READ} == OUTPUTS.keys()


# -- commands that do what takes long in no time ----------------------------------------------------------------------


@pytest.fixture
def quick(folder: Path, engine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A working directory with inputs of all commands, whose long parts are played."""
    engine(row())
    saved_schedule(folder / "copy.json")
    saved_schedule(folder / "other.json")
    (folder / "sim_build" / "results").mkdir(parents=True)
    (folder / "sim_build" / "results" / "20260102T030404.000001Z-tiny-x-verilator.json").write_text("{")
    (folder / "one.toml").write_text('name = "one"\n[[network]]\nname = "resnet8"\n')
    (folder / "two.csv").write_text("Layer,M,N,K,\na,4,4,4,\nb,4,4,8,\n")
    (folder / "sweep.toml").write_text(
        'name = "t"\nmeasure = "model"\nchips = ["tiny"]\nschedulers = ["loop_order"]\nworkloads = ["gemm:4x4x4"]\n'
    )
    with Store(folder / "rows") as store:
        store.add([point("a"), point("b")])
    monkeypatch.setattr(verilog, "files", lambda config: {"tiny.v": "module chip();\nendmodule\n", "tiny.json": "{}\n"})
    monkeypatch.setattr(verilog_files, "OUTPUT", tmp_path_factory.mktemp("kept"))  # it is nobody's Verilog
    monkeypatch.setattr(serving, "serve", lambda *result, **options: SimpleNamespace(results=SERVED))
    monkeypatch.setattr(bitstreams, "bitstream", placed)
    (folder / "texts.toml").write_text('name = "t"\nmodel = "shakespeare"\n[[request]]\nprompt = 1\noutput = 1\n')
    monkeypatch.setattr(tokens, "serve", lambda *result, **options: (TEXTS,))
    monkeypatch.setattr(training, "train", trained)
    monkeypatch.setattr(generation, "generate", generated)
    monkeypatch.setattr(cluster, "begin", lambda more: None)
    monkeypatch.setattr(cluster, "opened", lambda jobs, address: nullcontext())
    monkeypatch.setattr(cluster, "workers", lambda client: 1)
    monkeypatch.setattr(cluster, "run", evaluated)


def point(key: str) -> PointRow:
    figures = {"cycles": 100, "dram_bytes": 64}
    plain = {"key": key, "chip": "tiny", "scheduler": "s", "workload": key, "measure": "model", "status": "predicted"}
    return PointRow.model_validate(plain | figures)


def placed(request: BitstreamRequest, _: Callable[[str], None]) -> Bitstream:
    file = Path(bitstreams.BITSTREAM).absolute()
    file.write_bytes(bytes(64))
    return Bitstream(file, FpgaLayout(fmax=request.clock, cells={}, path=(), parts=()))


def evaluated(client: object, batches: Sequence[Batch], on_done: Callable[[Done], None]) -> None:
    for each in batches:
        on_done(Done.model_validate_json(evaluate(each.model_dump_json())))


def generated(result: generation.Generation, *_: Callable[..., None]) -> LanguageResults:
    save_text(first_state(result.model, result.prompt), result.keep, result.setting())
    texts = ("code", "chip_digest", "scheduler", "simulator", "cache", "prompt", "text", "float_text")
    numbers = ("weights", "chunk", "context", "cache_bytes", "bytes_checked", "mismatches", "divergences")
    phase = dict.fromkeys(("steps", "tokens", "rtl_cycles", "model_cycles", "dram_bytes", "least_cycles"), 0)
    return LanguageResults.model_validate({
        **dict.fromkeys(texts, ""), **dict.fromkeys(numbers, 0), "started": NOW, "environment": {}, "model": "m",
        "chip": "tiny", "complete": True, "agreement": None, "perplexity": 1.0, "float_perplexity": 1.0,
        "prefill": phase, "decode": phase, "cpu_seconds": 0.0, "checkpoint": result.keep.as_posix(),
    })  # fmt: skip


def trained(result: training.Training, *_: Callable[..., None]) -> TrainingResults:
    save(begun(trainable.load("digits")[0], 0), result.keep, result.setting())
    texts = dict.fromkeys(("order", "across", "update", "simulator", "first_mismatch", "first_divergence"), "")
    numbers = dict.fromkeys(("model_cycles", "bytes_checked", "mismatches", "divergences", "step_cycles"), 0)
    return TrainingResults.model_validate({
        "started": NOW, "environment": {}, "code": "", "network": "digits", "chip": "quad8", "chip_digest": "",
        "batch": 1, "seed": 0, "learning_rate": 0.1, "momentum": 0.0, "complete": True, "steps": 1, "losses": (1.0,),
        "accuracy": None, "float_accuracy": None, "rtl_cycles": None, "cpu_seconds": 0.0,
        "checkpoint": result.keep.as_posix(), **texts, **numbers,
    })  # fmt: skip


NOW = datetime(2026, 1, 1, tzinfo=UTC)
METRICS = {"antt": 1.0, "stp": 1.0, "sla_violations": 0.0, "utilisation": 0.5, "busy": 0.5}
SERVED = ScenarioResults(
    started=NOW, environment={}, instances=(), programs=(),
    scenario=ScenarioFigures.model_validate(
        METRICS | {
            "name": "one", "chip": "lp9", "chip_digest": "", "scheduler": "s", "decision_cycles": 0, "model_cycles": 9,
            "model": Metrics(**METRICS), "decisions": 0, "decision_seconds": (0.0, 0.0),
        }
    ),
)  # fmt: skip

SPREAD = dict.fromkeys(("mean", "median", "p99", "worst"), 1.0)
TEXTS = TokenRun.model_validate({
    **dict.fromkeys(("scenario", "model", "chip", "chip_digest", "scheduler", "steps_scheduler", "simulator"), "t"),
    **dict.fromkeys(("seats", "chunk", "wait"), 1), "clock_mhz": None, "texts": (), "steps": (),
    "figures": {"ttft": SPREAD, "tpot": SPREAD, "batch": 1.0}
    | dict.fromkeys(("texts", "met", "tokens", "good_tokens", "cycles"), 1),
})  # fmt: skip


# -- what is there already --------------------------------------------------------------------------------------------


def places(output: Output) -> tuple[Path, Path]:
    """What the option is given, and the file that is written then; its folder is there."""
    place = Path(output.name)
    if not output.file:
        return place, place
    place.mkdir()
    return place, place / output.file


@pytest.mark.parametrize("output", cases())
def test_a_link_stays_and_its_target_is_written(output: Output, quick: None) -> None:
    place, link = places(output)
    Path("target").write_bytes(b"")
    if output.read:  # a link to what is gone on from would be read; one to what is not there yet is written through
        Path("target").unlink()
    if output.file in ("made.parquet", "program.bin"):  # its name is a digest; the folder is written whole
        place.rmdir()
        Path("real").mkdir()
        place.symlink_to("real")
        link = place
    else:
        link.symlink_to(Path("target").absolute())
    shown = invoke(*output.command(place))
    assert shown.exit_code == Exit.OK, shown.output
    assert link.is_symlink()
    written = Path("target")
    if link == place and output.file:
        written = next(path for path in Path("real").iterdir() if path.suffix == ".parquet" or path.name == output.file)
    assert written.stat().st_size > 20
    assert not list(Path().rglob(".target.*")), "nothing half-written is left"


@pytest.mark.parametrize("output", cases(*SOME, again=False))
def test_a_pipe_gets_the_content_and_stays(output: Output, quick: None) -> None:
    place, pipe = places(output)
    os.mkfifo(pipe)
    content: list[bytes] = []
    reader = threading.Thread(target=lambda: content.append(pipe.read_bytes()), daemon=True)
    reader.start()
    shown = invoke(*output.command(place))
    assert shown.exit_code == Exit.OK, shown.output
    reader.join(10)
    assert pipe.is_fifo()
    assert len(content[0]) > 20


@pytest.mark.parametrize("output", cases(again=False))
def test_a_device_stays_and_a_full_one_is_one_error(output: Output, quick: None) -> None:
    """Through a link, so that not even a test that fails replaces the device."""
    place, link = places(output)
    link.symlink_to("/dev/full")
    shown = invoke(*output.command(place))
    assert shown.exit_code == Exit.NOT_WRITTEN, shown.output
    assert shown.stderr.splitlines()[-1] == f"error: {link}: cannot be written: {ROOM}"
    assert link.is_symlink()
    assert link.is_char_device()


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file may become larger: as if the disk were full, for whoever runs the tests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("output", cases(*SOME, "train --checkpoint a.npz", "sweep --out out"))
def test_what_there_is_no_room_for_leaves_the_old_file(output: Output, quick: None) -> None:
    place, file = places(output)
    if not output.read:
        file.write_bytes(b"old")
    with limited(16):
        shown = invoke(*output.command(place))
    assert shown.exit_code == Exit.NOT_WRITTEN, shown.output
    last = shown.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "cannot be written: File too large; raise the limit on the size of files (ulimit -f)" in last
    assert output.read or file.read_bytes() == b"old"
    assert not [path for path in Path().rglob(f".{file.name}.*") if path.is_file()]


@pytest.mark.parametrize("output", cases())
def test_a_file_in_the_place_of_a_folder_is_named_before_anything_runs(output: Output, quick: None) -> None:
    Path("there").write_bytes(b"old")
    shown = invoke(*output.command(Path("there") / output.name))
    assert shown.exit_code == Exit.NOT_WRITTEN, shown.output
    assert shown.stderr.splitlines()[-1].startswith("error: there/")
    assert "cannot be written: Not a directory; name another place" in shown.stderr
    assert Path("there").read_bytes() == b"old"


@pytest.mark.parametrize("output", [each for each in cases(*SOME) if not each.values[0].file])
def test_a_folder_in_the_place_of_a_file_is_named(output: Output, quick: None) -> None:
    Path(output.name).mkdir()
    shown = invoke(*output.command(Path(output.name)))
    assert shown.exit_code == Exit.NOT_WRITTEN, shown.output
    assert f"error: {output.name}: cannot be written: Is a directory; name another place" in shown.stderr


def test_a_checkpoint_is_a_file_and_one_that_is_begun_anew_is_replaced(quick: None) -> None:
    """A device would be read without an end; what `--fresh` removed was whatever the path named."""
    Path("link").symlink_to("/dev/full")
    for fresh in ((), ("--fresh",)):
        shown = invoke(*TRAIN.split(), "--checkpoint", "link", *fresh)
        assert shown.exit_code == Exit.BAD_INPUT
        assert "link is no file that a later run could go on from" in " ".join(shown.stderr.replace("│", " ").split())
        assert Path("link").is_symlink()
