"""The Model Context Protocol over a pipe: JSON-RPC 2.0, a message a line, tools alone.

Written here and not taken from the SDK (`mcp` on PyPI): that brings a web server, tokens and telemetry, some twenty
packages, of which a server on a pipe uses none. The protocol: modelcontextprotocol.io, "Base Protocol" and "Tools".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TextIO, cast

from meshloom.sched.support.reading import parse_json

#: Versions of the protocol, the latest first: a client that asks for another one is offered the first.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
#: Characters of a message that is read at all.
LONGEST = 1 << 20
_PARSE, _INVALID, _NO_METHOD, _PARAMETERS = -32700, -32600, -32601, -32602

#: What JSON can say of an object.
Members = Mapping[str, object]


class CallError(ValueError):
    """A call of a tool that did not succeed; the message is for the agent."""


class _Refused(Exception):
    """A request that the protocol does not allow."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Tool:
    """A tool. `schema`: JSON Schema of its arguments; `call(arguments)` returns JSON, and raises CallError. `writes`:
    it may write files."""

    name: str
    description: str
    schema: Members
    call: Callable[[Members], object]
    writes: bool = False


@dataclass
class Server:
    """A server. `instructions`: for the agent; `most`: characters of an answer at most."""

    version: str
    instructions: str
    tools: Iterable[Tool]
    most: int
    _by_name: dict[str, Tool] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = {tool.name: tool for tool in self.tools}

    def serve(self, source: TextIO, to: TextIO) -> None:
        """Answers until the pipe is closed."""
        while line := source.readline(LONGEST + 1):
            if len(line) > LONGEST:
                while line and not line.endswith("\n"):  # the rest of it
                    line = source.readline(LONGEST)
                answer = _error(None, _INVALID, f"a message has at most {LONGEST:,} characters")
            else:
                answer = self.answer(line) if line.strip() else None
            if answer is not None:
                to.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n")
                to.flush()

    def answer(self, line: str) -> Members | None:
        """The answer to a message; None to a notification, and to an answer."""
        try:
            message = parse_json(line)
        except ValueError as error:
            return _error(None, _PARSE, f"is not JSON: {error}")
        if not isinstance(message, dict):
            return _error(None, _INVALID, "a message is one object")
        members = cast(Members, message)
        identity, method = members.get("id"), members.get("method")
        if method is None and ("result" in members or "error" in members):
            return None
        if members.get("jsonrpc") != "2.0" or not isinstance(method, str):
            return _error(identity, _INVALID, 'a request has jsonrpc = "2.0" and a method')
        if "id" not in members:
            return None
        if not isinstance(identity, str | int) or isinstance(identity, bool):
            return _error(None, _INVALID, "the id of a request is a text or a whole number")
        parameters = members.get("params", {})
        if not isinstance(parameters, dict):
            return _error(identity, _PARAMETERS, "params is an object")
        try:
            result = self._result(method, cast(Members, parameters))
        except _Refused as refused:
            return _error(identity, refused.code, str(refused))
        return {"jsonrpc": "2.0", "id": identity, "result": result}

    def _result(self, method: str, parameters: Members) -> Members:
        match method:
            case "initialize":
                wish = parameters.get("protocolVersion")
                return {
                    "protocolVersion": wish if wish in VERSIONS else VERSIONS[0],
                    "capabilities": {"tools": {"listChanged": False}},
                    "serverInfo": {"name": "meshloom", "version": self.version},
                    "instructions": self.instructions,
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [_listed(tool) for tool in self._by_name.values()]}
            case "tools/call":
                return self._call(parameters)
            case _:
                raise _Refused(_NO_METHOD, f"there is no method {method!r}")

    def _call(self, parameters: Members) -> Members:
        name, arguments = parameters.get("name"), parameters.get("arguments", {})
        if not isinstance(name, str) or name not in self._by_name:
            raise _Refused(_PARAMETERS, f"unknown tool {name!r}; there are {', '.join(self._by_name)}")
        if not isinstance(arguments, dict):
            raise _Refused(_PARAMETERS, "arguments is an object")
        try:
            text = json.dumps(self._by_name[name].call(cast(Members, arguments)), ensure_ascii=False)
        except CallError as error:
            return _content(str(error)[: self.most], True)
        if len(text) > self.most:
            return _content(f"the answer has {len(text):,} characters, at most {self.most:,}; ask for less", True)
        return _content(text, False)


def _listed(tool: Tool) -> Members:
    hints = {"readOnlyHint": not tool.writes, "destructiveHint": False, "openWorldHint": False}
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema, "annotations": hints}


def _content(text: str, wrong: bool) -> Members:
    return {"content": [{"type": "text", "text": text}], "isError": wrong}


def _error(identity: object, code: int, message: str) -> Members:
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}
