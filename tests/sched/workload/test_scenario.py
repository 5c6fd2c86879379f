"""Scenarios in files, arrivals, and the sets of workloads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from meshloom.sched.schedulers.online.instances import instances_of
from meshloom.sched.workload import zoo
from meshloom.sched.workload.arrivals import Poisson
from meshloom.sched.workload.scenario import FileReading, Request, Scenario, ScenarioError, load
from meshloom.sched.workload.workload_sets import BATCHES, NETWORKS, workload_sets

from ..serving_world import network

EXAMPLE = Path(__file__).parents[3] / "examples" / "scenarios" / "mixed.toml"
KNOWN = ("resnet8", "vww")


def write(folder: Path, text: str) -> Path:
    path = folder / "s.toml"
    path.write_text(text)
    return path


def test_the_example_has_four_networks_that_there_are() -> None:
    result = load(EXAMPLE, zoo.names())
    assert len(result.networks) == 4
    assert [request.arrival for request in result.requests] == sorted(request.arrival for request in result.requests)
    assert all(request.factor == 1.2 for request in result.requests)


def test_every_form_of_arrival(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("cycle,network\n70,vww\n30,resnet8\n\n50, vww\n")
    path = write(
        tmp_path,
        'name = "s"\n[[network]]\nname = "resnet8"\narrival = [9, 5]\ndeadline = 100\n'
        '[[network]]\nname = "vww"\nbatch = 4\narrival = { trace = "t.csv" }\ndeadline_factor = 0.5\n'
        '[[network]]\nname = "vww"\narrival = { poisson = 2.0, number = 3, seed = 1, start = 1000 }\n'
        '[[network]]\nname = "resnet8"\n',
    )
    result = load(path, KNOWN).requests
    assert result[:5] == (
        Request("resnet8"),
        Request("resnet8", 1, 5, 100),
        Request("resnet8", 1, 9, 100),
        Request("vww", 4, 50, None, 0.5),
        Request("vww", 4, 70, None, 0.5),
    )
    assert [request.arrival for request in result[5:]] == list(
        Poisson(poisson=2, number=3, seed=1, start=1000).cycles()
    )


def test_how_files_of_networks_are_read(tmp_path: Path) -> None:
    for name in ("mine.onnx", "one.npy", "two.npy"):
        (tmp_path / name).touch()
    mine = '[[network]]\nname = "mine.onnx"\n'
    files = 'calibrate = ["one.npy", "two.npy"]\n'
    result = load(write(tmp_path, f'name = "s"\n{mine}{files}{mine}arrival = 9\n[[network]]\nname = "vww"\n'), KNOWN)
    reading = FileReading((tmp_path / "one.npy", tmp_path / "two.npy"))
    assert result.readings == {str(tmp_path / "mine.onnx"): reading}
    result = load(write(tmp_path, f'name = "s"\n{mine}bind = {{ length = 8 }}\n'), KNOWN)
    assert result.readings == {str(tmp_path / "mine.onnx"): FileReading(bind=(("length", 8),))}
    for text, message in (
        (f'{mine}calibrate = ["three.npy"]\n', "calibrate: there is no file .*three.npy"),
        (f'{mine}calibrate = "one.npy"\n', 'calibrate = "?one.npy"? must be a list, such as'),
        (
            f'[[network]]\nname = "vww"\n{files}',
            "calibrate and bind are for .onnx files; vww has its own",
        ),
        (f"{mine}bind = {{ length = 0 }}\n", "bind.length"),
        (
            f'{mine}{files}{mine}calibrate = ["one.npy"]\n',
            "bind are not those of another .* give all the same",
        ),
    ):
        with pytest.raises(ScenarioError, match=message):
            load(write(tmp_path, f'name = "s"\n{text}'), KNOWN)


def test_a_poisson_process_has_its_rate() -> None:
    cycles = Poisson(poisson=5, number=4000, seed=3).cycles()
    assert list(cycles) == sorted(cycles)
    assert 4000 / cycles[-1] * 1e6 == pytest.approx(5, rel=0.05)


HEAD = 'name = "s"\n[[network]]\nname = "vww"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "malformed TOML"),
        ('name = "s"\n', r"there is no \[\[network\]\]"),
        ('name = "s"\nnetwork = "vww"\n', r"there is no \[\[network\]\]"),
        ('name = "s"\nnetwork = [3]\n', r"network 1 must be a table"),
        ('name = "s"\nmodel = "shakespeare"\n', "asks for texts of a language model; `meshloom serve-tokens`"),
        ('name = "s"\nfactor = 1\n[[network]]\nname = "vww"\n', "factor: there is no such field"),
        (HEAD + "bach = 3\n", r"network 1 \(vww\): bach: there is no such field; did you mean batch"),
        (HEAD + "batch = 0\n", r"network 1 \(vww\): batch = 0 must be at least 1"),
        (HEAD + "[[network]]\nbatch = 1\n", r"network 2 \(without a name\): name: is missing"),
        (HEAD.replace("vww", "vw"), r"name: unknown network 'vw'; did you mean vww"),
        (HEAD.replace("vww", "a.onnx"), "there is no file .*a.onnx"),
        (HEAD + "arrival = -1\n", r"arrival = -1 must be a cycle, a list of cycles, \{ poisson"),
        (HEAD + "arrival = { rate = 1 }\n", "arrival has rate; it must be"),
        (HEAD + "arrival = { poisson = 0, number = 1, seed = 1 }\n", "arrival: poisson = 0 must be at least"),
        (HEAD + 'arrival = { poisson = "x", number = 1, seed = 1 }\n', "must be a number"),
        (HEAD + "arrival = { poisson = 1, number = 1 }\n", "arrival: seed: is missing"),
        (HEAD + 'arrival = { trace = "none.csv" }\n', "none.csv: cannot be read"),
        (
            HEAD + "arrival = [1, 4294967296]\n",
            "cycle 4294967296 is beyond 4294967295, the last",
        ),
        (HEAD + "arrival = { poisson = 0.001, number = 9, seed = 1, start = 4294967295 }\n", "is beyond 4294967295"),
        (HEAD + "deadline = 4294967296\n", "must be at most 4294967295"),
        (HEAD + "deadline = 3\ndeadline_factor = 0.4\n", "deadline and deadline_factor are given"),
    ],
)
def test_one_error_names_the_place_and_the_mend(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ScenarioError, match=message) as error:
        load(path, KNOWN)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value).removeprefix(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [("when,what\n", "line 1"), ("cycle,network\n5\n", "line 2"), ("cycle,network\n5,vww\nx,vww\n", "line 3")],
)
def test_a_wrong_line_of_a_trace_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ScenarioError, match=message):
        load(write(tmp_path, HEAD + 'arrival = { trace = "t.csv" }\n'))


def test_a_network_that_its_trace_never_names_is_an_error(tmp_path: Path) -> None:
    """It would not arrive, and nobody would notice: a misspelt row, most likely."""
    (tmp_path / "t.csv").write_text("cycle,network\n5,resnet8\n7,vww2\n")
    with pytest.raises(ScenarioError, match=r"arrival: .*t\.csv never names vww; did you mean vww2"):
        load(write(tmp_path, HEAD + 'arrival = { trace = "t.csv" }\n'))


def test_deadlines_in_cycles() -> None:
    one = network("a", 1000, 1000)
    scenario = Scenario("s", (Request("a", 1, 10, 50), Request("a", 1, 20, None, 0.5), Request("a", 1, 30)))
    result = instances_of(scenario, {("a", 1): one})
    assert [instance.deadline for instance in result] == [60, 20 + round(0.5 * one.isolated(1)), None]


def test_workload_sets_are_those_of_the_paper() -> None:
    result = workload_sets(9)
    assert len(result) == 30
    assert [len(one.requests) for one in result] == [3] * 10 + [6] * 10 + [10] * 10
    drawn = Counter(request.network for one in result for request in one.requests)
    assert set(drawn) == set(NETWORKS)
    assert {request.batch for one in result for request in one.requests} == set(BATCHES)
    assert {request.factor for one in result for request in one.requests} == {0.4}
    assert {request.factor for one in workload_sets(25) for request in one.requests} == {0.2}
    again = workload_sets(25, rate=2.0)
    assert [[r.network for r in one.requests] for one in again] == [[r.network for r in one.requests] for one in result]
    assert again[-1].requests[-1].arrival > 0
