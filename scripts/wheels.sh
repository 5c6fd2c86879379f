#!/usr/bin/env bash
# Makes a wheel for each supported Python that this machine has, with the timeline model compiled, in dist/.
#
#   scripts/wheels.sh                3.11, 3.12 and 3.13
#   scripts/wheels.sh 3.12           that one
#
# scripts/pythons.sh makes the environments and tries them first. A wheel is for one Python and one platform; who has
# another one builds Meshloom from its sources, and compiles the model there.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSIONS=("$@")
[ "${#VERSIONS[@]}" -gt 0 ] || VERSIONS=(3.11 3.12 3.13)

scripts/pythons.sh "${VERSIONS[@]}"
for version in "${VERSIONS[@]}"; do
    python=sim_build/pythons/$version/bin/python
    [ -x "$python" ] || continue
    rm -rf build # what an earlier wheel was made of would be in this one, too
    MESHLOOM_COMPILED=$("$python" -c 'from meshloom.sched.model.native import folder; print(folder())') \
        "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
    rm -rf build
done
ls dist
