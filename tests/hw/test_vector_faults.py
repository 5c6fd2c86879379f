"""VECs that must not be: one fault each that names its cause, nothing written, and the next one runs as ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.core import vector_golden
from meshloom.hw.core.golden import CoreMemories
from meshloom.hw.spec.isa import WHOLE_PAIRS, Cause, Pair, Region, VectorOp, YWalk, address

from ..tiers import slow_but
from .vector_bench import CHIPS, COUNTS, FORMAT, ONE, Vec, chip, complete, random_memories, run

LINE = {"in_w": 6, "x_plane": 6, "out_w": 6, "pixels": 6}
MAC, SUM, MAX, ADD, REQUANT, TRANSPOSE, TABLE, PAIR = VectorOp
WINDOW = {"kernel_h": 2, "kernel_w": 2}
FAULTS: dict[str, tuple[Vec, Cause, int]] = {
    **{f"{op.name} from OUT": ({"op": op, "x_out": 1}, Cause.RESERVED_BITS, 0) for op in (ADD, REQUANT, PAIR)},
    **{
        f"{op.name} with addend": ({"op": op, "addend": 1}, Cause.RESERVED_BITS, 0)
        for op in (MAX, ADD, REQUANT, TRANSPOSE, TABLE, PAIR)
    },
    **{f"{op.name} with pair": ({"op": op, "pair": 1}, Cause.RESERVED_BITS, 0) for op in VectorOp if op != PAIR},
    **{
        f"{op.name} with y_walk": ({"op": op, "y_walk": YWalk.BLOCK}, Cause.RESERVED_BITS, 0)
        for op in VectorOp if op not in (ADD, PAIR)
    },
    **{f"{op.name} of a whole block": ({"op": op, "y_walk": 3}, Cause.RESERVED_BITS, 0) for op in (ADD, PAIR, TABLE)},
    **{
        f"{op.name} of a whole block with {pair.name}": ({"op": op, "y_walk": 3, "pair": pair}, Cause.RESERVED_BITS, 0)
        for op in (MAC, SUM, MAX) for pair in Pair if (op, pair) not in WHOLE_PAIRS
    },
    "whole block with addend": ({"op": SUM, "y_walk": 3, "addend": 1}, Cause.RESERVED_BITS, 0),
    "maximum of a whole block times 16": (
        {"op": MAX, "y_walk": 3, "pair": Pair.SUBTRACT, "times16": 1}, Cause.RESERVED_BITS, 0
    ),
    "whole block with a window": ({"op": MAC, "y_walk": 3, "kernel_w": 2}, Cause.SHAPE, 0),
    "repeated whole block": ({"op": SUM, "y_walk": 3, "repeat": 1}, Cause.SHAPE, 0),
    "x of a whole block in A": (LINE | {"op": MAC, "y_walk": 3, "x_base": 58}, Cause.ADDRESS, address(Region.MAIN, 61)),
    "result of a whole block": (
        LINE | {"op": SUM, "y_walk": 3, "dest_base": 79}, Cause.ADDRESS, address(Region.VEC, 83)
    ),
    **{
        f"{op.name} times 16": ({"op": op, "times16": 1}, Cause.RESERVED_BITS, 0)
        for op in (MAX, ADD, TRANSPOSE, TABLE)
    },
    **{
        f"{pair.name} times 16": ({"op": PAIR, "pair": pair, "times16": 1}, Cause.RESERVED_BITS, 0)
        for pair in Pair if pair is not Pair.MUL
    },
    "repeated windows": ({"op": MAX, "repeat": 1, "kernel_h": 2}, Cause.SHAPE, 0),
    **{f"no {name}": ({"op": MAX, name: 0}, Cause.SHAPE, 0) for name in COUNTS},
    **{
        f"{op.name} with {name} {count}": ({"op": op, name: count}, Cause.SHAPE, 0)
        for op in (ADD, REQUANT, TRANSPOSE, TABLE, PAIR)
        for name, count in (("kernel_h", 2), ("kernel_w", 31), ("kernel_w", 0))
    },
    "x in A": (LINE | {"op": MAX, "x_base": 58}, Cause.ADDRESS, address(Region.MAIN, 61)),
    "x in A far": ({"op": SUM, "x_base": 65535}, Cause.ADDRESS, address(Region.MAIN, 65535)),
    "x in A, window": (
        LINE | {"op": MAC, "x_base": 50, "x_plane": 12, "pixels": 5, "out_w": 5} | WINDOW,
        Cause.ADDRESS,
        address(Region.MAIN, 61),
    ),
    "x in OUT": (LINE | {"op": TRANSPOSE, "x_out": 1, "x_base": 69}, Cause.ADDRESS, address(Region.OUT, 71)),
    "x in ACC": (LINE | {"op": REQUANT, "x_base": 14}, Cause.ADDRESS, address(Region.ACC, 4 * 19)),
    "y in B": ({"op": MAC, "y_base": 65, "blocks": 3}, Cause.ADDRESS, address(Region.B, 67)),
    "y in B, window": (
        LINE | {"op": MAC, "x_plane": 12, "pixels": 5, "out_w": 5, "y_base": 60, "blocks": 2} | WINDOW,
        Cause.ADDRESS,
        address(Region.B, 67),
    ),
    "y in B far": ({"op": MAC, "y_base": 65535, "blocks": 2}, Cause.ADDRESS, address(Region.B, 65535)),
    "table": (LINE | {"op": TABLE, "y_base": 5}, Cause.ADDRESS, address(Region.B, 67)),
    "y in OUT": (LINE | {"op": ADD, "y_base": 70}, Cause.ADDRESS, address(Region.OUT, 71)),
    "y in OUT, a word a block": (
        LINE | {"op": PAIR, "y_walk": YWalk.BLOCK, "blocks": 3, "y_base": 69, "x_plane": 6},
        Cause.ADDRESS,
        address(Region.OUT, 71),
    ),
    "y in OUT, a word a pixel": (
        LINE | {"op": ADD, "y_walk": YWalk.PIXEL, "blocks": 2, "y_base": 66}, Cause.ADDRESS, address(Region.OUT, 71)
    ),
    "bias": ({"op": SUM, "addend": 1, "addend_base": 18, "blocks": 2}, Cause.ADDRESS, address(Region.ACC, 4 * 19)),
    "bias far": ({"op": MAC, "addend": 1, "addend_base": 16383}, Cause.ADDRESS, address(Region.ACC, 4 * 16383)),
    "result": (LINE | {"op": MAX, "dest_base": 79}, Cause.ADDRESS, address(Region.VEC, 83)),
    "result far": ({"op": ADD, "dest_base": 16383}, Cause.ADDRESS, address(Region.VEC, 16383)),
    "result of a transposition": (
        LINE | {"op": TRANSPOSE, "blocks": 2, "x_plane": 6, "dest_base": 73}, Cause.ADDRESS, address(Region.VEC, 83)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["odd memories", "3 windows"])
def test_faults_name_their_cause_and_never_hang(name: str) -> None:
    """Each bad VEC between two good ones: one fault each, all retire, and the good ones' results are there."""
    config = CHIPS[name]
    memories = random_memories(config, 12)
    good = complete(ONE | LINE | {"op": SUM, "dest_base": 3, "scale": 60000, "addend": 1})
    vecs: list[int] = []
    for tag, (change, _, _) in enumerate(FAULTS.values()):
        body = ONE | {"dest_base": 40, "tag": tag} | change
        vecs += [FORMAT.pack(body), FORMAT.pack(good | {"tag": 1000 + tag})]
    outcome = run(config, memories, vecs)
    result = {tag: (cause, value) for cause, tag, value in outcome.faults}
    assert {name: result.get(tag) for tag, name in enumerate(FAULTS)} == {
        name: (cause, value) for name, (_, cause, value) in FAULTS.items()
    }
    assert len(outcome.faults) == len(FAULTS)
    assert not outcome.out_of_range
    assert all(address < config.core.vec_words for _, address in outcome.written)
    assert [retired["tag"] for retired in outcome.retired] == [
        n for tag in range(len(FAULTS)) for n in (tag, 1000 + tag)
    ]
    expected = memories.copy()
    vector_golden.vec(config, expected, good)
    np.testing.assert_array_equal(outcome.vec[:40], expected.vec[:40])


def _nothing_behind(memories: CoreMemories, op: int) -> CoreMemories:
    """The same memories with room for all that a VEC can name, filled with what counts for nothing."""
    longer = {}
    for name in ("a", "b", "acc", "out"):
        memory = getattr(memories, name)
        longer[name] = np.full((1 << 17, memory.shape[1]), -128 if op == MAX else 0, memory.dtype)
        longer[name][: len(memory)] = memory
    return replace(memories, **longer)


@pytest.mark.parametrize("name", slow_but(["odd memories", "3 windows"], "odd memories"))
def test_what_lies_past_a_memory_counts_for_nothing(name: str) -> None:
    """Each VEC that reads past the end of a memory, behind one that reads the last words of all memories (which then
    stand at their ports): its results are those of the words that are there."""
    config = CHIPS[name]
    memories = random_memories(config, 15)
    memories.acc[:] = 1 << 20  # so that a bias that is none is seen
    last = {"x_base": config.core.a_words - 1, "y_base": config.core.b_words - 1}
    before = complete(ONE | last | {"op": MAC, "addend": 1, "addend_base": config.core.acc_words - 1})
    for case, (change, cause, value) in FAULTS.items():
        if cause is not Cause.ADDRESS or value >> 24 == Region.VEC:
            continue
        vec = complete(ONE | {"dest_base": 40, "clamp": 127, "scale": 1 << 13} | change)
        outcome = run(config, memories, [FORMAT.pack(before), FORMAT.pack(vec)])
        assert [result for result, _, _ in outcome.faults] == [Cause.ADDRESS], case
        expected = _nothing_behind(memories, vec["op"])
        for code in (before, vec):
            vector_golden.vec(config, expected, code)
        np.testing.assert_array_equal(outcome.vec, expected.vec, err_msg=case)


@pytest.mark.parametrize("name", ["odd memories", "3 windows"])
def test_void_vecs_write_nothing(name: str) -> None:
    config = CHIPS[name]
    wrong = [change for change, cause, _ in FAULTS.values() if cause is not Cause.ADDRESS]
    vecs = [FORMAT.pack(ONE | change) for change in wrong]
    outcome = run(config, random_memories(config, 13), vecs)
    assert len(outcome.faults) == len(outcome.retired) == len(vecs)
    assert outcome.written == []


def test_a_unit_without_a_table_refuses_to_look_up() -> None:
    config = chip(4, vec_table=False)
    vecs = [FORMAT.pack(complete(ONE | LINE | {"op": op, "tag": op})) for op in (TABLE, ADD)]
    outcome = run(config, random_memories(config, 18), vecs)
    assert outcome.faults == [(Cause.RESERVED_BITS, int(TABLE), 0)]
    assert {at for _, at in outcome.written} == set(range(6))


def test_a_unit_refuses_operations_that_it_lacks() -> None:
    config = chip(4, vec_ops=["add"], vec_whole=False, vec_table=False)
    vecs = [FORMAT.pack(complete(ONE | LINE | {"op": op, "tag": op})) for op in VectorOp]
    outcome = run(config, random_memories(config, 19), vecs)
    assert outcome.faults == [(Cause.RESERVED_BITS, int(op), 0) for op in VectorOp if op is not ADD]
    assert len(outcome.retired) == len(vecs)
    assert len(outcome.written) == LINE["pixels"]


def test_golden_refuses_what_leaves_a_memory() -> None:
    config = CHIPS["odd memories"]
    for change, cause, _ in FAULTS.values():
        if cause is Cause.ADDRESS:
            with pytest.raises(IndexError, match=r"^VEC (reaches|writes) "):
                vector_golden.vec(config, random_memories(config, 14), complete(ONE | change))
