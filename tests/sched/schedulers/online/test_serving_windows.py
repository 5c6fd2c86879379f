"""Windows of DRAM for instances of networks."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import PAGE_WORDS
from meshloom.sched.lowering.templates.flush import end_address, flush, host_pages
from meshloom.sched.schedulers.online.windows import DramWindows, Window, WindowError

from ...served import chip_of

#: The host's own pages come after the hundred of these tests.
CHIP = chip_of("dram core", "host dram", dram={"words": 101 * 1024 + 7, "bytes_per_cycle": 8})


@pytest.mark.parametrize("seed", range(4))
def test_windows_are_disjoint_and_all_space_comes_back(seed: int) -> None:
    """A window is refused only where no free pages in a row are enough."""
    random = Random(seed)
    memory = DramWindows(CHIP)
    used: list[Window] = []
    refused = 0
    for _ in range(600):
        if used and random.random() < 0.45:
            memory.give_back(used.pop(random.randrange(len(used))))
        else:
            pages = random.randint(1, 25)
            window = memory.allot(pages, "it")
            if window is None:
                refused += 1
                assert largest(used) < pages
            else:
                assert window.pages == pages
                used.append(window)
        taken = [page for window in used for page in range(window.first_page, window.end_page)]
        assert len(taken) == len(set(taken))
        assert set(taken) <= set(range(100))
    assert refused > 20
    for window in used:
        memory.give_back(window)
    assert memory.allot(100, "it") == Window(0, 100)


def largest(used: list[Window]) -> int:
    """Free pages in a row, of a hundred."""
    ordered = [Window(0, 0), *sorted(used), Window(100, 100)]
    return max(after.first_page - before.end_page for before, after in pairwise(ordered))


def test_a_window_is_taken_from_the_smallest_space_that_holds_it() -> None:
    memory = DramWindows(CHIP)
    windows = [memory.allot(pages, "it") for pages in (20, 1, 5, 1)]
    for window in (windows[0], windows[2]):
        assert window is not None
        memory.give_back(window)
    assert memory.allot(4, "it") == Window(21, 25)


def test_the_last_pages_are_the_hosts() -> None:
    assert host_pages(CHIP) == range(100, 101)
    starts = [end_address(CHIP, slot) for slot in range(CHIP.programs)]
    assert all(100 * 1024 < start < 101 * 1024 for start in starts)
    large = load("lp25")
    assert host_pages(large).stop * 1024 == large.dram.words
    assert len({end_address(large, slot) // 64 for slot in range(large.programs)}) == large.programs


@pytest.mark.parametrize("cores", range(1, 17))
def test_the_hosts_pages_hold_what_flushes_all_cores(cores: int) -> None:
    """The streams, the boot stream behind them and those that end programs; a page fewer would not."""
    rows = f"dram {'core ' * cores}{'. ' * (16 - cores)}".split()
    chip = chip_of(" ".join(rows[:9]), " ".join(["host", *rows[9:]]), dram={"words": 200 * PAGE_WORDS})
    streams = flush(chip, chip.cores, chip.programs, host_pages(chip).start)
    *_, last = streams
    counts = len(last.instructions), len(streams)
    end = last.address + sum(-(-count * chip.instruction_words // 64) * 64 for count in counts)
    assert 0 <= end_address(chip, chip.programs - 1) - end < PAGE_WORDS


def test_what_never_fits_is_an_error_with_sizes() -> None:
    memory = DramWindows(CHIP)
    result = memory.allot(100, "vgg16")
    assert result is not None
    assert (result, result.base) == (Window(0, 100), 0)
    assert memory.allot(1, "resnet18") is None
    with pytest.raises(WindowError, match=r"vgg16 needs 103 pages .* 2 dram tiles \(1\.7 MB\).*dram.words by 3072"):
        memory.allot(103, "vgg16")
    with pytest.raises(WindowError, match="asks for 0 pages"):
        memory.allot(0, "it")
    memory.give_back(result)
    with pytest.raises(WindowError, match=r"pages 0\.\.99 are not a window in use"):
        memory.give_back(result)
    with pytest.raises(WindowError, match="has no page of 1024 words besides the host's own"):
        DramWindows(chip_of("dram core", "host dram", dram={"words": 1024, "bytes_per_cycle": 8}))
