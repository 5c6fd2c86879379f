"""Windows of DRAM for instances of networks."""

from __future__ import annotations

from random import Random

import pytest

from meshloom.hw.config import load
from meshloom.sched.lowering.templates.flush import end_address, host_pages
from meshloom.sched.schedulers.online.windows import DramWindows, Fit, Window, WindowError, pages_of

from .served import chip_of

#: The host's own pages come after the hundred of these tests.
CHIP = chip_of("dram core", "host dram", dram={"words": 101 * 1024 + 7, "bytes_per_cycle": 8})


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("seed", range(4))
def test_windows_are_disjoint_and_all_space_comes_back(fit: Fit, seed: int) -> None:
    random = Random(seed)
    memory = DramWindows(CHIP, fit, reserved=3)
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
                assert memory.largest < pages
            else:
                assert window.pages == pages
                used.append(window)
        taken = [page for window in used for page in range(window.first_page, window.end_page)]
        assert len(taken) == len(set(taken)) == 97 - memory.free_pages
        assert set(taken) <= set(range(3, 100))
    assert refused > 20
    for window in used:
        memory.give_back(window)
    assert memory.largest == memory.free_pages == 97


def test_first_and_best_fit_differ() -> None:
    found = {}
    for fit in Fit:
        memory = DramWindows(CHIP, fit)
        windows = [memory.allot(pages, "it") for pages in (20, 1, 5, 1)]
        for window in (windows[0], windows[2]):
            assert window is not None
            memory.give_back(window)
        found[fit] = memory.allot(4, "it")
    assert found == {Fit.FIRST: Window(0, 4), Fit.BEST: Window(21, 25)}


def test_the_last_pages_are_the_hosts() -> None:
    assert host_pages(CHIP) == range(100, 101)
    starts = [end_address(CHIP, slot) for slot in range(CHIP.programs)]
    assert all(100 * 1024 < start < 101 * 1024 for start in starts)
    large = load("lp25")
    assert host_pages(large).stop * 1024 == large.dram.words
    assert len({end_address(large, slot) // 64 for slot in range(large.programs)}) == large.programs


def test_words_and_pages() -> None:
    assert [pages_of(words) for words in (1, 1024, 1025)] == [1, 1, 2]
    assert (Window(2, 5).base, Window(2, 5).words) == (2048, 3072)


def test_what_never_fits_is_an_error_with_sizes() -> None:
    memory = DramWindows(CHIP, reserved=10)
    assert memory.allot(90, "vgg16") == Window(10, 100)
    assert memory.allot(1, "resnet18") is None
    with pytest.raises(WindowError, match=r"vgg16 needs 91 pages of 1024 words in each of 2 dram tiles \(1\.5 MB\)"):
        memory.allot(91, "vgg16")
    with pytest.raises(WindowError, match="asks for 0 pages"):
        memory.allot(0, "it")
    memory.give_back(Window(10, 100))
    with pytest.raises(WindowError, match=r"pages 10\.\.99 are not a window in use"):
        memory.give_back(Window(10, 100))
    with pytest.raises(WindowError, match="100 pages are reserved"):
        DramWindows(CHIP, reserved=100)
