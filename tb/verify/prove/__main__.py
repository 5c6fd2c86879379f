"""Command line of the proofs: `python -m meshloom.tb.verify.prove [--quick] [--traces] [part of a name ...]`."""

from __future__ import annotations

import argparse
import sys

from . import PROOFS, ProveError, run


def main() -> int:
    """Runs what is asked for, prints a line for each, and returns the number of failures (0 or 1)."""
    parser = argparse.ArgumentParser(prog="prove", description="Proves the network on chip.")
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument("--quick", action="store_true", help="only those that take seconds")
    parser.add_argument("--traces", action="store_true", help="print the counterexamples of broken gateware too")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args()
    chosen = [
        item
        for item in PROOFS.values()
        if (item.quick or not options.quick) and (not options.names or any(part in item.name for part in options.names))
    ]
    if not chosen:
        parser.error(f"nothing is called {' or '.join(options.names)}; --list shows all names")
    if options.list:
        print("\n".join(item.name for item in chosen))
        return 0
    failures, total = 0, 0.0
    for item in chosen:
        try:
            result = run(item.name)
        except ProveError as error:
            failures += 1
            print(f"{item.name:<42} {'':<24} FAILED: {error}", flush=True)
            continue
        total += result.seconds
        print(f"{result.name:<42} {result.method:<24} {result.seconds:6.1f} s  {result.verdict}", flush=True)
        if result.trace and (options.traces or not result.passed):
            print("    " + result.trace.replace("\n", "\n    "), flush=True)
        failures += not result.passed
    print(f"{len(chosen) - failures} of {len(chosen)} as expected, {total:.0f} CPU-seconds")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
