"""How the words of a MOVE are cut into packets of the data plane (`hw/memory/mover.py`)."""

from __future__ import annotations

from collections.abc import Mapping


def packets(fields: Mapping[str, int], longest: int) -> list[tuple[int, int]]:
    """(address of the first word, words) of each packet of the MOVE with these `fields`, in order.

    A packet has at most `longest` words (`ChipConfig.packet_words`), and ends where the destination run ends or the
    address reaches a multiple of as many. `fields` must have dst, dst_run and words >= 1 (dst_stride: 0 if missing).
    """
    result: list[tuple[int, int]] = []
    base = address = fields["dst"]
    run, stride = fields["dst_run"], fields.get("dst_stride", 0)
    run_left, left = run, fields["words"]
    while left > 0:
        size = min(run_left, left, longest - address % longest)
        result.append((address, size))
        address += size
        run_left -= size
        left -= size
        if run_left == 0:
            base += stride
            address, run_left = base, run
    return result
