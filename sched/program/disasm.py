"""Listings of programs, and the reference tables of all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from meshloom.hw.spec import isa, registers
from meshloom.hw.spec.config import MOST_HOPS, MOST_POINTS, ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Addend, Format, Opcode, VectorOp
from meshloom.hw.spec.routes import DIRECTIONS, TURN_BITS, Turn

from ..support.text import one_line
from .names import Names, address_name, opcode_name, streams_of, tile_name, unit_name
from .program import Instruction, Program


def instruction_text(instruction: Instruction, chip: ChipConfig) -> str:
    """One instruction in one line: the header, then what it does, with tiles as `kind@(x,y)`, addresses by region.

    `MOVE wait s3>=2 | 64 words dram@(0,0) MAIN+0x100 -> core@(1,0) B+0x0 run 8 stride 16 | notify s1 of core@(1,0)`
    Fields that are 0 without a meaning are left out. Accepts fields out of range, too.
    """
    opcode, fields = instruction.opcode, _Zeros(instruction.fields)
    name = opcode_name(opcode)
    header: list[str] = []
    if fields["wait_n"]:
        header.append(f"wait s{fields['wait_sem']}>={fields['wait_n']}")
    if fields["fire_at"]:
        header.append(f"at cycle {fields['fire_at']}")
    describe = _BODIES.get(opcode, _any)
    body = describe(fields, chip)
    if fields["post_n"]:
        body.append(f"post s{fields['post_sem']}+{fields['post_n']}")
    return " ".join((name, *header)) + "".join(f" | {part}" for part in body)


class _Zeros(dict[str, int]):
    """Fields; missing ones are 0."""

    def __missing__(self, key: str) -> int:
        return 0


def _any(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    """Fields by name: of an instruction that has no words of its own here."""
    body = ((name, value) for name, value in fields.items() if value and name not in isa.HEADER_FORMAT.offsets)
    text = " ".join(f"{name} {value}" for name, value in body)
    return [text] if text else []


def _sync(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    return [f"add {fields['n']} to s{fields['sem']} of {tile_name(chip, fields['tile'])}"] if fields["n"] else []


def _move(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    ends: list[str] = []
    for end in ("src", "dst"):
        text = f"{tile_name(chip, fields[f'{end}_tile'])} {address_name(fields[end])}"
        if fields[f"{end}_run"] < fields["words"]:
            text += f" run {fields[f'{end}_run']} stride {fields[f'{end}_stride']}"
        ends.append(text)
    body = [f"{fields['words']} words {ends[0]} -> {ends[1]}"]
    if copies := fields["copies"]:
        body.append(f"and {copies} tile{'s' if copies > 1 else ''} before it")
    if fields["notify"]:
        body.append(f"notify s{fields['notify_sem']} of {tile_name(chip, fields['notify_tile'])}")
    return body


def _route(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    body = [f"virtual channel {fields['channel'] - 1}"] if fields["channel"] else []
    if fields["routed"]:
        entries = [fields["turns"] >> TURN_BITS * at & 3 for at in range(MOST_HOPS + 1)]
        end = next((at for at, entry in enumerate(entries) if at and entry == Turn.EJECT), len(entries))
        turns = [DIRECTIONS[entries[0]], *(Turn(entry).name.lower() for entry in entries[1:end])]
        body.append(f"{end} hops: {', '.join(turns)}")
    return body


def _order(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    # the following instruction determines which of these fields matter
    body = [f"to {tile_name(chip, fields['tile'])}"] if fields["tile"] else []
    body += [f"virtual channel {fields['channel'] - 1}"] if fields["channel"] else []
    points = (tile_name(chip, fields["points"] >> 8 * at & 0xFF) for at in range(min(fields["count"], MOST_POINTS)))
    return [*body, f"via {', '.join(points)}"] if fields["count"] else body


def _gemm(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    rows = fields["a_plane"] // fields["in_w"] if fields["in_w"] else 0
    out_rows = -(-fields["pixels"] // fields["out_w"]) if fields["out_w"] else 0
    source = f"A+{fields['a_base']:#x} {fields['k_blocks']} x {rows}x{fields['in_w']} words"
    kernel = _window("kernel", fields)
    weights = f"B+{fields['b_base']:#x} {fields['n_blocks']} x {chip.cols} channels{' int4' if fields['int4'] else ''}"
    memory = "ACC" if fields["to_acc"] else "OUT"
    result = f"{memory}+{fields['dest_base']:#x} {fields['pixels']} pixels ({out_rows}x{fields['out_w']})"
    if not fields["to_acc"]:
        result += f" {_scale(fields, isa.SCALE_SHIFT)}" + _clamps(fields)
    addend = fields["addend"]
    plus = []
    if addend:
        kind = Addend(addend).name.lower() if addend in set(Addend) else f"addend {addend}"
        plus = [f"+ {kind} ACC+{fields['addend_base']:#x}"]
    return [source, weights, kernel, *plus, f"-> {result}"]


def _window(name: str, fields: Mapping[str, int]) -> str:
    text = f"{name} {fields['kernel_h']}x{fields['kernel_w']} stride {fields['stride_h']}x{fields['stride_w']}"
    return text + f" dilation {fields['dilation']} pad top {fields['pad_top']} left {fields['pad_left']}"


def _clamps(fields: Mapping[str, int]) -> str:
    return (" relu" if fields["relu"] else "") + (f" clamp {fields['clamp']}" if fields["clamp"] != 127 else "")


def _scale(fields: Mapping[str, int], shift: int) -> str:
    scale = fields["scale"]
    return f"scales ACC+{scale:#x}/2^{shift} by channel" if fields["by_channel"] else f"scale {scale}/2^{shift}"


def _vec(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    op = fields["op"]
    rows = fields["x_plane"] // fields["in_w"] if fields["in_w"] else 0
    out_rows = -(-fields["pixels"] // fields["out_w"]) if fields["out_w"] else 0
    memory = "ACC" if op == VectorOp.REQUANT else "OUT" if fields["x_out"] else "A"
    source = f"{memory}+{fields['x_base']:#x} {fields['blocks']} x {rows}x{fields['in_w']} words"
    name = VectorOp(op).name if op != VectorOp.PAIR else isa.Pair(fields["pair"]).name
    whole = op in isa.WINDOWED and fields["y_walk"] == isa.YWalk.WHOLE
    more = [_window("window", fields)]
    if fields["repeat"]:
        more.append(f"each word {fields['repeat'] + 1}x{fields['repeat'] + 1} times")
    if whole:
        more.append(f"{isa.Pair(fields['pair']).name} that of the whole block")
    elif op == VectorOp.MAC:
        more.append(f"filters B+{fields['y_base']:#x}")
    elif op == VectorOp.TABLE:
        more.append(f"table B+{fields['y_base']:#x}")
    elif op in isa.TWO_OPERANDS:
        walk = {1: " for each block", 2: " for each pixel"}.get(fields["y_walk"], "")
        more.append(f"{'+' if op == VectorOp.ADD else 'and'} OUT+{fields['y_base']:#x}{walk}")
    if fields["addend"]:
        more.append(f"+ bias ACC+{fields['addend_base']:#x}")
    result = f"VEC+{fields['dest_base']:#x} {fields['pixels']} pixels ({out_rows}x{fields['out_w']})"
    if op in isa.REQUANTISING or (op == VectorOp.PAIR and fields["pair"] == isa.Pair.MUL):
        result += f" {_scale(fields, isa.SCALE_SHIFT - 4 * fields['times16'])}"
    return [f"{name} {source}", *more, f"-> {result}{_clamps(fields)}"]


def _fetch(fields: Mapping[str, int], chip: ChipConfig) -> list[str]:
    place = f"{tile_name(chip, fields['dram'])} {address_name(fields['addr'])}"
    who = f"{tile_name(chip, fields['tile'])} {unit_name(fields['unit'])}"
    return [f"start {who} with {fields['count']} instructions from {place}"]


_BODIES: dict[Opcode, Callable[[Mapping[str, int], ChipConfig], list[str]]] = {
    Opcode.SYNC: _sync,
    Opcode.MOVE: _move,
    Opcode.GEMM: _gemm,
    Opcode.VEC: _vec,
    Opcode.FETCH: _fetch,
    Opcode.ROUTE: _route,
    Opcode.ORDER: _order,
}


def listing(program: Program, chip: ChipConfig, labels: Sequence[str] = ()) -> Iterator[str]:
    """The program line by line: for each stream a heading, then `position tag instruction ; operation n "label"`.

    `labels[i]` is the schedule's label of operation i. Never fails on a bad program, because listings serve to debug
    one.
    """
    names = Names(chip, program, labels)
    yield f"program for chip {chip.name} ({program.chip_digest[:12]})"
    for number, stream in enumerate(streams_of(program)):
        place = f"{tile_name(chip, stream.dram_tile)} {address_name(stream.address)}"
        yield ""
        yield f"{names.stream(number)}: {len(stream.instructions)} instructions in {place}"
        for position, instruction in enumerate(stream.instructions):
            tag = instruction.fields.get("tag", 0)
            operation = names.operation(number, position)
            note = ""
            if operation is not None:
                label = f' "{one_line(labels[operation])}"' if operation < len(labels) else ""
                note = f"  ; operation {operation}{label}"
            yield f"{position:6d} {tag:5d}  {instruction_text(instruction, chip)}{note}"


def format_tables() -> str:
    """Reference tables (Markdown) of every instruction, packet, record and register format, generated from
    `hw.spec.isa` and `hw.spec.registers`."""
    parts = ["## Instruction header", _table(isa.HEADER_FORMAT, 0)]
    header = len(isa.HEADER)
    for opcode, layout in INSTRUCTIONS.items():
        parts.append(f"## {opcode.name} (opcode {int(opcode)})")
        if len(layout.fields) > header:
            parts.append(f"After the header, {isa.INSTRUCTION_BITS} bits in all:")
            parts.append(_table(layout, header))
        else:
            parts.append("The header only.")
    packets = (isa.DATA_HEAD, isa.ARRIVAL, isa.COPIES, isa.REQUEST_HEAD, isa.POST, isa.SHORT_POST, isa.STATE, isa.TRACE)
    for layout in packets:
        parts += [f"## {layout.name}", f"{layout.width} bits.", _table(layout, 0)]
    operands = (isa.Addend, isa.VectorOp, isa.Pair, isa.YWalk)
    for enum in (isa.Unit, isa.Region, *operands, isa.Cause, isa.Part, isa.BlockedOn):
        rows = "\n".join(f"| {int(member)} | {member.name} |" for member in enum)
        parts += [f"## {enum.__name__}", f"| value | name |\n|---|---|\n{rows}"]
    rows = "\n".join(
        f"| {int(one):#04x} | {one.name} | {use} | {meaning} |" for one, (use, meaning) in registers.MEANINGS.items()
    )
    parts.append("## Registers of the host port")
    parts.append(f"AXI4-Lite, {registers.WIDTH} bits each; addresses in bytes. From LAUNCH on: chips with `programs`.")
    parts.append(f"| address | register | use | meaning |\n|---|---|---|---|\n{rows}")
    for layout in registers.FORMATS:
        parts += [f"## Register {layout.name}", _table(layout, 0)]
    return "\n\n".join(parts) + "\n"


def _table(layout: Format, skip: int) -> str:
    rows = ["| bits | field | meaning |", "|---|---|---|"]
    for field in layout.fields[skip:]:
        low, width = layout.offsets[field.name]
        bits = f"{low}" if width == 1 else f"{low + width - 1}:{low}"
        rows.append(f"| {bits} | `{field.name}` | {field.doc.replace('|', chr(92) + '|')} |")
    if layout is not isa.HEADER_FORMAT and layout.used < layout.width:
        bits = f"{layout.used}" if layout.used == layout.width - 1 else f"{layout.width - 1}:{layout.used}"
        rows.append(f"| {bits} | – | must be zero |")
    return "\n".join(rows)
