"""One list of causes wherever cycles are told, and one meaning of "network"."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from meshloom.hw.spec.config import load
from meshloom.tb.cli.main import app
from meshloom.tb.report.console import LOG_WIDTH, console
from meshloom.tb.report.row_tables import print_results
from meshloom.tb.results.legend import GROUPS, CycleCause, legend
from meshloom.tb.results.schema import load as load_results
from meshloom.tb.studies.registry import REGISTRY

from .command_line import invoke
from .kept_runs import keep, keep_network, results_file

SHAPE = "gemm:17x33x9"
TINY = load("tiny")


def test_the_legend_has_every_cause_and_every_group() -> None:
    """Or a cause is a group of its own, by the same name."""
    words = {name.strip() for name in re.split(r"[;=+]", legend().removeprefix("causes: "))}
    alone = {group for group in (*GROUPS, "planned") if [each for each in CycleCause if each.group == group] == [group]}
    assert set(map(str, CycleCause)) | set(GROUPS) == words | alone
    assert "noc = port + noc" in legend()
    assert len(legend()) < LOG_WIDTH


@pytest.mark.slow
def test_runs_explanations_and_comparisons_have_the_same(tmp_path: Path, capsys: Any) -> None:
    one, other = keep(tmp_path / "a", SHAPE, TINY), keep(tmp_path / "b", SHAPE, TINY, "zigzag")
    network = results_file(tmp_path / "n.json", keep_network(tmp_path / "n", "ds_cnn", load("quad8")))
    print_results(load_results(network), console())
    assert capsys.readouterr().out.count(legend()) == 1
    assert legend() in invoke("explain", one).output
    assert legend() in invoke("compare", one, other).output


def test_network_is_the_neural_network() -> None:
    """The other one is the NoC: in help, limits, headings, and what schedulers call themselves."""

    def texts(command: Any) -> list[str]:
        inner = [text for each in getattr(command, "commands", {}).values() for text in texts(each)]
        return [command.help or "", *(getattr(each, "help", "") or "" for each in command.params), *inner]

    everything = " ".join(texts(get_command(app)))
    assert not re.search(r"no network|network on chip|network port|network load", everything, re.IGNORECASE)
    assert "NoC" in REGISTRY.get("noc").summary
    shown = invoke("schedule", "ds_cnn", "--chip", "quad8").output
    assert "│ loop_order │" in shown
    assert "│ network │" not in shown
