"""The server for agents: a client over a pipe, what the protocol refuses, and what the fence does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from meshloom.tb.api.agents import AgentLimits, server
from meshloom.tb.api.fence import Fence, FenceError
from meshloom.tb.api.protocol import LONGEST, VERSIONS, CallError, Server, Tool
from meshloom.tb.cli.mcp import McpRequest

GEMM = Path(__file__).parents[2] / "examples" / "mappings" / "zigzag" / "tiny" / "gemm_32x32x32_complete.json"
PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
LIMITS = AgentLimits(60, 4096, 100_000, 20_000)
Call = Callable[..., tuple[Any, bool]]


@pytest.fixture
def call(folder: Path) -> Call:
    """Calls a tool of a server in this process: its answer, and whether it is an error."""
    return _caller(folder)


def _caller(folder: Path, limits: AgentLimits = LIMITS, schedulers: bool = False) -> Call:
    here = server(Fence(folder, schedulers), limits)

    def ask(name: str, **arguments: object) -> tuple[Any, bool]:
        answer: Any = here.answer(_request("tools/call", name=name, arguments=arguments))
        (content,) = answer["result"]["content"]
        wrong = answer["result"]["isError"]
        return (content["text"] if wrong else json.loads(content["text"])), wrong

    return ask


def _request(method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})


def test_what_a_server_allows_unless_told_otherwise() -> None:
    """The limits are those that the page says, and no file of the folder is executed."""
    text, request = PAGE.read_text(encoding="utf-8"), McpRequest(Path())
    limits = f"{request.time_limit:g} seconds", f"{request.memory_limit} MB", f"{request.max_cycles:,}"
    for limit in (*limits, f"{request.max_output:,}"):
        assert f"({limit})" in text
    assert not request.allow_schedulers


# -- over a pipe ------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A client of `meshloom mcp`: sends a request, or with `note` a notification, and returns the answer."""
    command = [sys.executable, "-m", "meshloom.tb.cli.main", "mcp", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        source, answers = process.stdin, process.stdout
        assert source is not None
        assert answers is not None
        sent = 0

        def ask(method: str, note: bool = False, **params: object) -> Any:
            nonlocal sent
            sent += not note
            identity = {} if note else {"id": sent}
            source.write(json.dumps({"jsonrpc": "2.0", **identity, "method": method, "params": params}) + "\n")
            source.flush()
            if note:
                return None
            answer = json.loads(answers.readline())
            assert (answer["jsonrpc"], answer["id"]) == ("2.0", sent)
            return answer

        yield ask
        source.close()
        assert answers.read() == "", "nothing but answers"
    assert process.returncode == 0


def test_a_client_initialises_lists_and_calls(client: Callable[..., Any], tmp_path: Path) -> None:
    hello = client(
        "initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "t", "version": "1"}
    )
    assert hello["result"]["protocolVersion"] == "2025-03-26"
    assert hello["result"]["serverInfo"]["name"] == "meshloom"
    assert "tools" in hello["result"]["capabilities"]
    client("notifications/initialized", note=True)
    assert client("ping")["result"] == {}
    tools = {tool["name"]: tool for tool in client("tools/list")["result"]["tools"]}
    assert set(tools) == {
        "chips", "workloads", "schedulers", "schedule", "check", "run", "explain", "compare", "import_mapping",
    }  # fmt: skip
    assert tools["schedule"]["inputSchema"]["required"] == ["workload"]
    arguments = {"workload": "gemm:8x8x8", "chip": "tiny", "scheduler": "loop_order:effort=0.01", "out": "a.json"}
    answer = client("tools/call", name="schedule", arguments=arguments)["result"]
    assert not answer["isError"], answer
    assert json.loads(answer["content"][0]["text"])["predicted_cycles"] > 0
    assert (tmp_path / "a.json").is_file()
    assert client("resources/list")["error"]["code"] == -32601


# -- the protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("{", -32700, "is not JSON"),
        ("[1]", -32600, "a message is one object"),
        ('{"id": 1, "method": "ping"}', -32600, "a request has jsonrpc"),
        ('{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600, "is a text or a whole number"),
        ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602, "params is an object"),
        (_request("tools/call", name="shell"), -32602, "unknown tool 'shell'; there are one"),
        (_request("tools/call", name="one", arguments=[]), -32602, "arguments is an object"),
        (_request("prompts/list"), -32601, "there is no method 'prompts/list'"),
    ],
)
def test_what_the_protocol_refuses(line: str, code: int, says: str) -> None:
    answer: Any = _small().answer(line)
    assert answer["error"]["code"] == code
    assert says in answer["error"]["message"]


def _small(text: str = "x") -> Server:
    def refuse(arguments: object) -> object:
        raise CallError("it cannot be")

    tools = [Tool("one", "", {"type": "object"}, lambda arguments: text), Tool("two", "", {}, refuse)]
    return Server("1", "", tools, 100)


def test_notifications_and_answers_have_no_answer_and_unknown_versions_get_ours() -> None:
    here = _small()
    assert here.answer('{"jsonrpc": "2.0", "method": "notifications/cancelled"}') is None
    assert here.answer('{"jsonrpc": "2.0", "id": 1, "result": {}}') is None
    answer: Any = here.answer(_request("initialize", protocolVersion="1999-01-01"))
    assert answer["result"]["protocolVersion"] == VERSIONS[0]


def test_answers_and_messages_have_a_longest() -> None:
    answer: Any = _small("y" * 200).answer(_request("tools/call", name="one"))
    assert answer["result"]["isError"]
    assert "has 202 characters, at most 100; ask for less" in answer["result"]["content"][0]["text"]
    wrong: Any = _small().answer(_request("tools/call", name="two"))
    assert wrong["result"] == {"content": [{"type": "text", "text": "it cannot be"}], "isError": True}
    to = StringIO()
    _small().serve(StringIO("x" * (2 * LONGEST + 5) + "\n\n" + _request("ping") + "\n"), to)
    first, second = map(json.loads, to.getvalue().splitlines())
    assert "a message has at most" in first["error"]["message"]
    assert second["result"] == {}


# -- the fence --------------------------------------------------------------------------------------------------------


def test_no_path_leads_out_of_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    fence = Fence(inside)
    assert fence.path("a/../b.json") == inside / "b.json"
    for text in ("../out/a", "link/a", str(outside / "a"), "/etc/passwd", "a/../../out"):
        with pytest.raises(FenceError, match="leads out of the folder of this server"):
            fence.path(text)
    with pytest.raises(FenceError, match="is no path"):
        fence.path("a\0b")
    for check in (fence.chip, fence.workload):
        with pytest.raises(FenceError, match="leads out of the folder"):
            check("../my.toml" if check == fence.chip else "link/net.onnx")
    with pytest.raises(FenceError, match="leads out of the folder"):
        fence.workload("../layers.csv/Conv1")
    with pytest.raises(FenceError, match="leads out of the folder"):
        fence.run("../latest.json")
    with pytest.raises(FenceError, match="unknown chip 'nobody'; there are"):
        fence.chip("nobody")
    for name in ("mine.py:KIND:a", "zigzag:../a.json"):
        with pytest.raises(FenceError, match="is none that this server takes"):
            fence.workload(name)
    assert fence.workload("resnet8/conv1") == "resnet8/conv1"
    assert fence.chip("tiny") == "tiny"


def test_scheduler_files_are_executed_only_where_that_is_allowed(folder: Path) -> None:
    (folder / "mine.py").write_text("from pathlib import Path\nPath('ran').touch()\ndef schedule(task):\n    1 / 0\n")
    closed, opened = _caller(folder), _caller(folder, schedulers=True)
    wish: Any = {"workload": "gemm:8x8x8", "chip": "tiny", "scheduler": "mine.py:schedule"}
    answer, wrong = closed("schedule", **wish)
    assert wrong
    assert "this server executes none (--allow-schedulers)" in answer
    assert not (folder / "ran").exists()
    answer, wrong = opened("schedule", **wish)
    assert wrong
    assert "division by zero" in answer
    assert (folder / "ran").exists()
    for name in ("os:system", "nobody"):
        answer, wrong = opened("schedule", **{**wish, "scheduler": name})
        assert wrong
        assert f"unknown scheduler '{name}'" in answer
    assert "leads out" in opened("schedule", **{**wish, "scheduler": "../mine.py:schedule"})[0]


# -- tools ------------------------------------------------------------------------------------------------------------


def test_lists_and_arguments(call: Call) -> None:
    assert "tiny" in call("chips")[0]["chips"]
    assert call("chips", chip="tiny")[0]["lanes"] == 4
    assert "resnet8" in call("workloads")[0]["networks"]
    assert "resnet8/conv1" in call("workloads", network="resnet8")[0]["layers"]
    assert "layers" in call("schedulers")[0]["loop_order"]["schedules"]
    answer, wrong = call("schedule", workload="gemm:8x8x8", chp="tiny")
    assert wrong
    assert "chp: there is no such field" in answer
    answer, wrong = call("schedule", workload="gem:8x8x8")
    assert wrong
    assert "unknown workload" in answer


def test_a_mapping_is_imported_checked_and_explained(folder: Path, call: Call) -> None:
    (folder / "gemm.json").write_bytes(GEMM.read_bytes())
    answer, wrong = call("import_mapping", tool="zigzag", file="gemm.json", chip="tiny", out="s.json")
    assert not wrong, answer
    assert answer["claim"]["cycles"] == 2306
    assert call("check", file="s.json")[0]["good"] is True
    why, wrong = call("explain", run="s.json")
    assert not wrong, why
    assert why["workloads"][0]["waterfall"]["cycles"] == answer["predicted_cycles"]
    assert "unknown tool 'mine.py:READER'" in call("import_mapping", tool="mine.py:READER", file="gemm.json")[0]
    assert "gemm.json" in call("check", file="gemm.json")[0]


def test_a_run_that_takes_too_many_cycles_and_a_call_that_takes_too_long_are_refused(folder: Path) -> None:
    wish: Any = {"workload": "gemm:8x8x8", "chip": "tiny", "scheduler": "loop_order:effort=0.01"}
    answer, wrong = _caller(folder, AgentLimits(60, 4096, 10, 20_000))("run", **wish)
    assert wrong
    assert "cycles are predicted, at most 10 are run" in answer
    answer, wrong = _caller(folder, AgentLimits(0.001, 4096, 10, 20_000))("run", **wish)
    assert wrong
    assert "the call ended: no result within 0.001 seconds" in answer


@pytest.mark.slow
def test_runs_are_compared_and_explained_by_their_names(folder: Path, call: Call) -> None:
    wish: Any = {"workload": "gemm:16x16x16", "chip": "tiny"}
    names = [call("run", **wish, scheduler=by)[0]["run"] for by in ("loop_order:effort=0.01", "paper_static")]
    assert all((folder / "sim_build" / "results" / f"{name}.json").is_file() for name in names)
    both, wrong = call("compare", runs=names)
    assert not wrong, both
    assert both["workloads"][0]["workload"] == "gemm:16x16x16"
    assert not call("explain", run=names[0])[1]
    assert call("run", workload="nobody.bin")[1]
