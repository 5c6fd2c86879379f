#!/usr/bin/env bash
# Tries Meshloom on each supported Python that this machine has, in an environment of its own below sim_build/pythons.
#
#   scripts/pythons.sh               3.11, 3.12 and 3.13
#   scripts/pythons.sh 3.12          that one
#
# Each gets the locked packages and this checkout, compiles the timeline model, and runs a layer on the RTL. A line says
# what came of each; one that the machine lacks is named and no error, and the exit status is 1 if one fails.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSIONS=("$@")
[ "${#VERSIONS[@]}" -gt 0 ] || VERSIONS=(3.11 3.12 3.13)

# The interpreter of a version, if it is one that starts: pyenv has shims of versions that it does not offer here.
interpreter() {
    local found
    for found in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$found" -c "import sys, venv; sys.exit(sys.version_info[:2] != tuple(map(int, '$1'.split('.'))))" 2>/dev/null
        then
            echo "$found"
            return
        fi
    done
    return 1
}

try() {
    local python=$1 place=$2
    [ -x "$place/bin/python" ] || "$python" -m venv "$place" || return
    "$place/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.lock || return
    "$place/bin/pip" install --quiet --disable-pip-version-check --no-deps --editable . || return
    "$place/bin/python" -m meshloom.sched.model || return
    "$place/bin/meshloom" run gemm:8x8x8 --chip tiny || return
}

status=0
for version in "${VERSIONS[@]}"; do
    place=sim_build/pythons/$version
    if ! python=$(interpreter "$version"); then
        echo "Python $version: not on this machine; install it with its venv module, or with pyenv"
        continue
    fi
    mkdir -p sim_build/pythons
    if try "$python" "$place" > "$place.log" 2>&1; then
        echo "Python $version: packages, compiled model and a layer on the RTL are right"
    else
        echo "Python $version: failed, see $place.log"
        status=1
    fi
done
exit "$status"
