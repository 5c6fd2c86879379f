"""What a machine can do at best for an array: a plain C++ loop over the same processing elements.

Simulated cycles per second differ between machines, and between compilers' targets on one machine. As a ratio to this
loop, compiled by the same compiler for the same target and run just before, they say what a simulator adds.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from meshloom.hw.config import ChipConfig

from ..build.builder import compiler, tool_variables
from .interface import BenchmarkError

#: Multiplications that a run makes: a second or less.
_WORK = 1 << 28
_REPEATS = 3

_SOURCE = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

struct Array {
    int8_t a[ROWS][COLS + 1], b[ROWS + 1][COLS];
    int32_t sum[ROWS][COLS];
    uint8_t first[ROWS + COLS];
};
static Array arrays[CORES];

__attribute__((noinline)) static void cycle(Array& one) {
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < COLS; n++)
            one.sum[m][n] = (one.first[m + n] ? 0 : one.sum[m][n]) + one.a[m][n] * one.b[m][n];
    for (int m = 0; m < ROWS; m++)
        for (int n = COLS; n > 0; n--) one.a[m][n] = one.a[m][n - 1];
    for (int m = ROWS; m > 0; m--)
        for (int n = 0; n < COLS; n++) one.b[m][n] = one.b[m - 1][n];
    for (int d = ROWS + COLS - 1; d > 0; d--) one.first[d] = one.first[d - 1];
}

int main(int, char** arguments) {
    long cycles = atol(arguments[1]);
    uint32_t state = 1;
    clock_t begun = clock();
    for (long now = 0; now < cycles; now++)
        for (Array& one : arrays) {
            for (int m = 0; m < ROWS; m++) one.a[m][0] = (state = state * 1664525 + 1013904223) >> 24;
            for (int n = 0; n < COLS; n++) one.b[0][n] = (state = state * 1664525 + 1013904223) >> 24;
            one.first[0] = now % 128 == 0;
            cycle(one);
        }
    double seconds = double(clock() - begun) / CLOCKS_PER_SEC;
    printf("%.9g %d\\n", cycles / seconds, arrays[0].sum[ROWS / 2][COLS / 2]);
}
"""


def speed(config: ChipConfig, target: str) -> float:
    """Cycles per CPU-second of a loop over all of a chip's processing elements, the best of a few runs; `target`: as in
    `-march`. Raises BenchmarkError."""
    return max(_run(config.rows, config.cols, len(config.cores), target) for _ in range(_REPEATS))


def _run(rows: int, cols: int, cores: int, target: str) -> float:
    cycles = max(100, _WORK // (rows * cols * cores))
    with TemporaryDirectory(prefix="meshloom_") as folder:
        program = Path(folder) / "plain"
        program.write_bytes(_compiled(rows, cols, cores, target))
        program.chmod(0o700)
        return float(_output([str(program), str(cycles)]).split()[0])


@cache
def _compiled(rows: int, cols: int, cores: int, target: str) -> bytes:
    with TemporaryDirectory(prefix="meshloom_") as folder:
        source, program = Path(folder) / "plain.cpp", Path(folder) / "plain"
        source.write_text(_SOURCE)
        sizes = [f"-DROWS={rows}", f"-DCOLS={cols}", f"-DCORES={cores}"]
        _output([compiler(), "-O3", "-std=c++20", f"-march={target}", *sizes, str(source), "-o", str(program)])
        return program.read_bytes()


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=tool_variables())
    except (OSError, subprocess.CalledProcessError) as error:
        words = getattr(error, "stderr", None) or error
        raise BenchmarkError(f"the plain loop: {command[0]} failed: {str(words).strip()[:300]}") from error
    return done.stdout
