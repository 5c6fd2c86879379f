"""Writes a workload of the study `puzzle_assumptions` as a scenario for `meshloom serve`.

python scripts/puzzle_scenario.py --seed 1 --load 0.9 > busy.toml
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from meshloom.sched.workload.scenario import Scenario
from meshloom.tb.studies.layer_puzzle.assumed import MIXES, Setting


def toml(scenario: Scenario) -> str:
    """The file of a scenario."""
    lines = [f'name = "{scenario.name}"']
    for request in scenario.requests:
        lines += ["", "[[network]]", f'name = "{request.network}"', f"batch = {request.batch}"]
        lines += [f"arrival = {request.arrival}", f"deadline_factor = {request.factor}"]
    return "\n".join(lines) + "\n"


def setting(options: argparse.Namespace) -> Setting:
    """What is assumed of arrivals and networks."""
    arrivals = "trace" if options.trace else "poisson" if options.load else "at once"
    short = not options.without_ncf
    return Setting(arrivals, options.load, short=short, mix=options.mix, batch=options.batch)


def main(arguments: Sequence[str] | None = None) -> str:
    """The file that options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the draws (the study has 1 to 10)")
    parser.add_argument("--load", type=float, default=0.0, help="of a Poisson process; 0: all at once")
    parser.add_argument("--trace", action="store_true", help="two networks at a time")
    parser.add_argument("--without-ncf", action="store_true", help="the others alone")
    parser.add_argument("--mix", choices=tuple(MIXES), default="two", help="what the others are drawn from")
    parser.add_argument("--batch", type=int, default=1, help="images of MobileNet and NCF")
    options = parser.parse_args(arguments)
    return toml(setting(options).scenario(options.seed))


if __name__ == "__main__":
    sys.stdout.write(main())
