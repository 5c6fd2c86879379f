"""The yardstick of simulation speed: a plain C++ loop over the same processing elements.

Simulated cycles per second differ between machines, and between compilers' targets on one machine. As a ratio to this
loop, compiled by the same compiler for the same target and run just before, they say what a simulator adds.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from meshloom.hw.spec.config import ChipConfig

from ...build.builder import compiler, tool_variables
from ..engine.rows import StudyError

#: Multiplications that a run makes: a second or less.
_WORK = 1 << 30
_REPEATS = 3

#: Flat memories, masks instead of branches and operands from a table: the form that compilers vectorise best of those
#: that were tried (nested arrays with a choice by flag: a fifth of the speed at 32 x 32).
_SOURCE = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

struct Array {
    int8_t a[ROWS * COLS], b[ROWS * COLS];
    int32_t sum[ROWS * COLS], keep[ROWS + COLS];
};
static Array arrays[CORES];
static int8_t operands[4096];

__attribute__((noinline)) static void cycle(Array& one, const int8_t* west, const int8_t* north) {
    for (int m = 0; m < ROWS; m++) one.a[m * COLS] = west[m];
    for (int n = 0; n < COLS; n++) one.b[n] = north[n];
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < COLS; n++)
            one.sum[m * COLS + n] =
                (one.sum[m * COLS + n] & one.keep[m + n]) + one.a[m * COLS + n] * one.b[m * COLS + n];
    for (int e = ROWS * COLS - 1; e > 0; e--) one.a[e] = one.a[e - 1];
    for (int e = ROWS * COLS - 1; e >= COLS; e--) one.b[e] = one.b[e - COLS];
    for (int d = ROWS + COLS - 1; d > 0; d--) one.keep[d] = one.keep[d - 1];
}

int main(int, char** arguments) {
    long cycles = atol(arguments[1]);
    uint32_t state = 1;
    for (int8_t& one : operands) one = (state = state * 1664525 + 1013904223) >> 24;
    clock_t begun = clock();
    for (long now = 0; now < cycles; now++)
        for (Array& one : arrays) {
            one.keep[0] = now % 128 == 0 ? 0 : -1;
            cycle(one, operands + now % 2048, operands + 2048 + now % 1024);
        }
    double seconds = double(clock() - begun) / CLOCKS_PER_SEC;
    int32_t check = 0;
    for (Array& one : arrays)
        for (int32_t sum : one.sum) check ^= sum;
    printf("%.9g %d\\n", cycles / seconds, check);
}
"""


def speed(config: ChipConfig, target: str) -> float:
    """Cycles per CPU-second of a loop over all of a chip's processing elements, the best of a few runs; `target`: as in
    `-march`. Raises StudyError."""
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
        process = subprocess.run(command, capture_output=True, text=True, check=True, env=tool_variables())
    except (OSError, subprocess.CalledProcessError) as error:
        words = getattr(error, "stderr", None) or error
        raise StudyError(f"the plain loop: {command[0]} failed: {str(words).strip()[:300]}") from error
    return process.stdout
