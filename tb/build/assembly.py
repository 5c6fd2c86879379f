"""A chip's simulator assembled from its blocks': the C++ that carries the wires' values between them, cycle by cycle.

Outputs of blocks are functions of registers (`hw.assembly.partition`), so in each cycle every block is evaluated once,
in any order, after the outputs of the cycle before have been carried to the inputs. Blocks with outputs that follow
inputs in the same cycle (`late`) are evaluated for these first. A block at rest, whose inputs have not changed, is left
out: nothing in it would change.

The bench's side are the functions of `FUNCTIONS`, which `bench.apart` imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from meshloom.hw.assembly.partition import Block, Partition, Piece
from meshloom.hw.spec.config import ChipConfig, TileKind

from .bench import LOG_OFFSET_BITS, TAPS

#: What the bench calls: result, name, parameters, in SystemVerilog.
FUNCTIONS = (
    ("void", "chip_reset", "input bit value"),
    ("void", "chip_wait", "input int cycles"),
    ("int", "chip_run", "input int cycles"),  # until `irq` is set, at most so many; whether it is
    ("void", "chip_write", "input int address, input int value"),
    ("int", "chip_read", "input int address"),
    ("int", "chip_load", "input int channel, input string path, input bit fresh"),  # whether the image is whole
    ("int", "chip_dump", "input int channel, input string path, input int first, input int last"),
    ("int", "chip_log", "input string path"),  # what the cores' units write from here on; an empty path: no longer
    ("int", "chip_protocol", ""),  # whether a DRAM channel has seen a breach of its protocol
)
#: The input that says the number of the cycle. Blocks that do not make it themselves (`told`) keep a copy.
NOW = "now"
#: The input with counts that change in most cycles, while few cycles look at them.
LINKS = "links"
#: Inputs that no block at rest takes notice of.
QUIET = (NOW, LINKS)
#: Ports that a block has besides its module's. With a change of the first it takes its inputs (but for the quiet ones).
#: `AWAKE` has a bit for each of its clocks, set if that must change in this cycle, as its bit of `CLOCKS` then does; if
#: there is none, the block is at rest. `COUNT` says how many there are.
TAKE, AWAKE, CLOCKS, COUNT = "take", "awake", "clocks", "count"
#: Ports of a block that counts are handed to: with a change of `LOOK` it takes these, as it must while `LOOKS` is set.
LOOK, LOOKS = "look", "looks"
#: Ports of a block that is told the cycle's number. A cycle begins with the number that its copy has; with a change of
#: `TICK`, together with the clocks, the copy takes that on the input, which must be the next cycle's. With a change of
#: `WAKE` it does so by itself, in a block that has rested.
TICK, WAKE = "tick", "wake"
#: The instance of the DRAM model in a block.
MODEL = "model"
#: How the names of its variables begin in C++.
_MEMORY = f"unit__DOT__{MODEL}__DOT__"


def pin(port: str) -> str:
    """The name of a port in C++: not that of a function of the model's, nor one that Verilator writes differently."""
    return f"p_{port.replace('__', '_').replace('$', '_n')}"


def told(block: Block) -> bool:
    """Whether a block is told the cycle's number; the host's makes it."""
    return NOW in block.ports and f"{NOW}_out" not in block.ports


def _functions(kind: str) -> tuple[str, str]:
    """Those of Verilator's that find out what has been triggered in a model, and that carry it out."""
    return f"V{kind}___024root___eval_triggers_vec__act", f"V{kind}___024root___eval_nba"


@dataclass(frozen=True)
class Following:
    """The `outputs` of an instance that may follow these `inputs` in the same cycle."""

    outputs: frozenset[str]
    inputs: frozenset[str]


@dataclass(frozen=True)
class Assembly:
    """What the text is made of. `config`'s chip is observed."""

    config: ChipConfig
    parts: Partition

    @cached_property
    def drams(self) -> list[str]:
        """The instances that hold DRAM channels, by channel."""
        return [f"tile_{tile}" for tile in self.config.channels]

    @cached_property
    def late(self) -> dict[str, Following]:
        """Outputs that follow inputs in the same cycle, by instance (`hw.assembly.tile.Tile`,
        `hw.noc.router.Router`)."""
        found: dict[str, Following] = {}
        noc, channels = self.config.noc, self.config.noc.data_vcs
        for tile, kind in self.config.tiles.items():
            # a notify for another tile needs a place on the post plane
            outputs, inputs = {"data_in__ready"}, {"post_out__ready"}
            if channels > 1:  # an ejection buffer stands before
                outputs = set[str]()
            elif kind is TileKind.DRAM or noc.arrivals:
                inputs |= {"data_in__payload", "data_in__valid"}
            if self.config.dtt is not None:  # instructions are pushed when no others arrive
                outputs |= {"request_in__ready"}
                inputs |= {"data_in__valid"} if channels == 1 else set()
            if outputs:
                found[f"tile_{tile}"] = Following(frozenset(outputs), frozenset(inputs))
        if channels > 1:  # a router chooses among the channels that have room where its flit goes
            outputs = {f"eject_{tile}__{name}" for tile in self.config.tiles for name in ("valid", "payload")}
            inputs = {
                port
                for (name, port), pieces in self.parts.inputs.items()
                if name == "data_plane" and any(piece.port == "data_in__ready" for piece in pieces)
            }
            found["data_plane"] = Following(frozenset(outputs), frozenset(inputs))
        return found

    def text(self) -> str:
        """The C++ source."""
        blocks = "\n".join(
            f'#include "V{kind}.h"\n#include "V{kind}___024root.h"\n'
            + "\n".join(f"void {function}(V{kind}___024root*);" for function in _functions(kind))
            for kind in self.parts.blocks
        )
        units = "\n".join(f"  {self._unit(kind)} {name};" for name, kind in self._by_kind())
        members = "\n".join(self._members())
        work = "\n".join(self._work())
        return f"""{blocks}
#include "units.h"

namespace {{
struct Chip {{
{units}
{members}
}};
const Work all_work[] = {{
{work}
}};
{self._channels()}
}}  // namespace

#include "threads.h"
#include "functions.h"
"""

    @staticmethod
    def _unit(kind: str) -> str:
        return f"Unit<V{kind}, V{kind}___024root, {', '.join(_functions(kind))}>"

    @property
    def _host(self) -> str:
        return f"tile_{self.config.host}"

    def _by_kind(self) -> list[tuple[str, str]]:
        """Instances and their modules: the host, which numbers the cycles, then those of a kind one after another, so
        that its code stays in the cache."""
        order = list(self.parts.blocks)
        return sorted(self.parts.instances.items(), key=lambda one: (one[0] != self._host, order.index(one[1])))

    def _members(self) -> Iterator[str]:
        names = [name for name, _ in self._by_kind()]
        yield "  Chip() {"
        yield "    auto* context = Verilated::threadContextp();"
        for name in names:
            yield f'    {name}.make(context, "{name}");'
            if name in self.drams:
                yield f"    give_back({name}.m->{_MEMORY}mem);"
        for (name, port), pieces in self.parts.inputs.items():
            if all(not piece.port for piece in pieces) and port != "clk":
                yield f"    set({name}.m->{pin(port)}, {self._value(pieces, self._width(name, port))});"
        yield from (f"    {name}.first();" for name in names)
        yield "  }"
        for name in names:
            yield from self._pull(name, False)
            yield from self._pull(name, True)
        yield "  void cycle();"
        yield "  void observe() {"
        yield from self._observe()
        yield "  }"
        yield from self._bus()

    def _width(self, name: str, port: str) -> int:
        return self.parts.blocks[self.parts.instances[name]].ports[port].width

    def _pull(self, name: str, late: bool) -> Iterator[str]:
        """Takes over what has changed of the outputs that drive an instance: the `late` ones, or the others. Nobody
        looks at a stream's payload while it is not valid."""
        found: dict[str, list[str]] = {}
        for (target, port), pieces in self.parts.inputs.items():
            sources = dict.fromkeys(piece.instance for piece in pieces if piece.instance)
            if target != name or not sources or late is not self._follows(pieces):
                continue
            value = self._value(pieces, self._width(name, port))
            put = f"put({name}.m->{pin(port)}, {value})"
            followed = name in self.late and port in self.late[name].inputs
            line = f"{name}.{'followed' if followed else 'changed'} |= {put};"
            if valid := self._offer(pieces):
                line = f"if ({valid}) {line}"
            if port in QUIET:
                line = f"{name}.m->{pin(port)} = {value};"
            found.setdefault(" | ".join(f"{source}.{'fresh()' if late else 'ran'}" for source in sources), []).append(
                line
            )
        yield f"  void pull_{'late_' if late else ''}{name}() {{"
        for condition, lines in found.items():
            yield f"    if ({condition}) {{"
            yield from (f"      {line}" for line in lines)
            yield "    }"
        yield "  }"

    def _offer(self, pieces: Sequence[Piece]) -> str:
        """Whether the stream whose payload drives an input offers it, as an expression; empty if it is no payload."""
        source = pieces[0]
        valid = source.port.removesuffix("payload") + "valid"
        if len(pieces) > 1 or not source.instance or not source.port.endswith("__payload"):
            return ""
        known = self.parts.blocks[self.parts.instances[source.instance]].ports
        return f"{source.instance}.m->{pin(valid)}" if valid in known else ""

    def _follows(self, pieces: Sequence[Piece]) -> bool:
        return any(piece.instance in self.late and piece.port in self.late[piece.instance].outputs for piece in pieces)

    def _work(self) -> Iterator[str]:
        """What is to be done for each instance in a cycle, and about how much that is."""
        after = {name for (name, _), pieces in self.parts.inputs.items() if self._follows(pieces)}
        routers = len(self.config.tiles) * self.config.noc.data_vcs
        weights = {"core": 8 + self.config.rows * self.config.cols // 64, "data_plane": routers}
        for name, kind in self._by_kind():
            calls = [f"pull_{name}()", f"{name}.settle()" if name in self.late else ""]
            calls += [f"pull_late_{name}()" if name in after else "", f"{name}.step({self._next(kind)})"]
            actions = ", ".join(f"[](Chip& chip) {{ chip.{call}; }}" if call else "nullptr" for call in calls)
            yield f"  {{{weights.get(kind.removeprefix('tile_'), weights.get(name, 3))}, {actions}}},"

    def _next(self, kind: str) -> str:
        """The number of the next cycle, if a block is told it: the host has been evaluated before."""
        return f"chip.{self._host}.m->{pin(f'{NOW}_out')}" if told(self.parts.blocks[kind]) else ""

    def _value(self, pieces: Sequence[Piece], width: int) -> str:
        """What drives an input of that width, as an expression."""
        first = pieces[0]
        if len(pieces) == 1 and first.port and first.first == 0 and first.width in (width, self._source_width(first)):
            return f"{first.instance}.m->{pin(first.port)}"
        terms: list[tuple[int, int, str]] = []  # first bit, width, value
        at = 0
        for piece in pieces:
            value = f"bits({piece.instance}.m->{pin(piece.port)}, {piece.first}, {piece.width})"
            terms.append((at, piece.width, value if piece.port else str(piece.value)))
            at += piece.width
        if width <= 64:
            return " | ".join(f"QData{{{value}}} << {at}" for at, _, value in terms)
        into = "".join(f" place(to, {at}, {bits}, {value});" for at, bits, value in terms)
        return f"[&] {{ VlWide<{(width + 31) // 32}> to{{}};{into} return to; }}()"

    def _source_width(self, piece: Piece) -> int:
        return self._width(piece.instance, piece.port) if piece.instance else 0

    def _observe(self) -> Iterator[str]:
        """Notes what the cores' units write in this cycle."""
        for number, tile in enumerate(self.config.cores):
            for unit, region in TAPS.items():
                core = f"tile_{tile}.m->p_seen_{unit}"
                at = f"{core}_addr | {number << 24 | int(region) << LOG_OFFSET_BITS:#x}u"
                yield f"    if ({core}_en) note({at}, {core}_data);"

    def _bus(self) -> Iterator[str]:
        """The host's registers, and reset, which reaches all blocks."""
        yield f"  {self._unit(self.parts.instances[self._host])}& host() {{ return {self._host}; }}"
        yield "  void reset(bool value) {"
        for (name, port), pieces in self.parts.inputs.items():
            if pieces == (Piece(1, port="rst"),):  # whatever it is called there
                yield f"    {name}.changed |= put({name}.m->{pin(port)}, value);"
        yield "  }"
        yield f"  void loaded() {{ {' '.join(f'{name}.whole();' for name in self.drams)} }}"
        yield f"  bool irq() {{ return {self._host}.m->p_irq; }}"
        yield f"  bool protocol() {{ return {' | '.join(f'{name}.m->protocol_error' for name in self.drams)}; }}"

    def _channels(self) -> str:
        """Functions of DRAM channels."""
        cases = "\n".join(
            f"    case {number}: return use(chip().{name}.m->{_MEMORY}mem, chip().{name}.m->{_MEMORY}reach);"
            for number, name in enumerate(self.drams)
        )
        return f"""
Chip& chip() {{
  static Chip one;
  return one;
}}

constexpr unsigned lanes = {self.config.lanes};
template <class Use> int with_channel(int channel, Use use) {{
  switch (channel) {{
{cases}
  }}
  return 0;
}}
"""
