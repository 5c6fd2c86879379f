"""The study of memory: what a process and those that it starts have in use, and the page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from meshloom.tb.studies.engine.rows import StudyError
from meshloom.tb.studies.tools import memory
from meshloom.tb.studies.tools.peaks import peak_of, size_of

from .made_rows import page_of

#: Starts two processes that hold 64 MB each, at the same time.
TWO = """
import subprocess, sys
hold = "import sys; held = bytearray(b'1') * 64_000_000; print(flush=True); sys.stdin.read()"
some = [subprocess.Popen([sys.executable, "-c", hold], stdin=-1, stdout=-1) for _ in range(2)]
for each in some: each.stdout.readline()
import time; time.sleep(.5)
for each in some: each.communicate()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the kernel does not tell")
def test_processes_at_the_same_time_add_up() -> None:
    peak = peak_of([sys.executable, "-c", TWO], os.environ)
    assert 64e6 < peak.largest < 100e6
    assert 128e6 < peak.together < 190e6


def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"exit status 3: no luck"):
        peak_of([sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"], os.environ)
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to(tmp_path / "some" / "file")
    assert size_of(tmp_path) == 4


def test_what_is_above_its_bar_is_marked() -> None:
    little = memory.CommandPeak("check", 50_000_000, 60_000_000, 1_500_000, 2.0)
    much = memory.CommandPeak("run", 900_000_000, 1_600_000_000, 0, 90.0)
    point, build = memory.MemoryPoint("vgg16", "quad32", "default", True, 1), memory.BuildPeakPoint("quad32")
    page = page_of(memory.STUDY, {point: (little, much), build: (much,)})
    commands, builds = page.tables
    assert commands.rows[0][3:] == ("check", "50", "60", "1.5", "2.0")
    assert (commands.bad, builds.bad) == ({1}, set())
    assert "At most 1,600 MB" in page.answer
    assert "1,600 on vgg16" in page.answer
