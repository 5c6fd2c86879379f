#!/usr/bin/env bash
# Makes .venv with everything that Meshloom needs. Idempotent; quick when nothing has changed.
#
#   scripts/setup.sh           install what is missing
#   scripts/setup.sh browser   install the browser of the tests that look at pages, and nothing else
#   PYTHON=python3.12 scripts/setup.sh    with a certain interpreter
#
# Steps: system packages (apt-get; installs them, or prints the command to run when there is no right to), a virtual
# environment with a Python >= 3.11, the exact pins of requirements.lock, the project itself, editable, and its timeline
# model and search compiled.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.setup-stamp
what=${1:-all}

say() { printf 'setup: %s\n' "$*"; }
# working WHAT COMMAND...: runs the command, and says now and then for how long.
working() {
    local what=$1 began=$SECONDS status=0
    shift
    while sleep "${TICK:-15}" >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do say "$what: $((SECONDS - began)) s so far"; done &
    local ticker=$!
    "$@" || status=$?
    kill $ticker 2>/dev/null || true
    wait $ticker 2>/dev/null || true
    return $status
}
fail() {
    printf 'setup: error: %s\n' "$*" >&2
    exit 1
}

[ "$what" = all ] || [ "$what" = browser ] || fail "$what: there is nothing but browser to name"

# -- system packages ------------------------------------------------------------------------------------------------
# What is looked for (a command, a header or a Python module) and the Debian package that brings it.
have() {
    case $1 in
        Python.h) python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ;;
        *.h) [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ] ;;
        ensurepip) python3 -c 'import ensurepip, venv' 2>/dev/null ;; # absent from Debian's python3 without python3-venv
        *) command -v "$1" >/dev/null ;;
    esac
}
needed=(
    "make make"              # Verilator's builds and ours
    "perl perl"              # Verilator's driver
    "g++ g++"                # the compiler when there is no clang; its C++ library in any case
    "iverilog iverilog"      # the second simulator
    "lz4.h liblz4-dev"       # FST waveforms
    "zlib.h zlib1g-dev"      # FST waveforms
    "python3 python3"        # runs everything
)
[ -n "${PYTHON:-}" ] || needed+=("ensurepip python3-venv")
[ "$what" = all ] || needed=()

missing=()
for pair in "${needed[@]}"; do
    have "${pair%% *}" || missing+=("${pair##* }")
done
# clang builds simulators that run 1.7 times as fast as g++'s, but g++ will do where a release has no clang 19. Python's
# headers are for the compiled timeline model; without them Python runs it.
wanted=()
if [ "$what" = browser ]; then
    have chromium || wanted+=(chromium)
else
    have clang++-19 || wanted+=(clang-19)
    [ -n "${PYTHON:-}" ] || have Python.h || wanted+=(python3-dev)
fi
without() {
    for package in "$@"; do
        case $package in
            clang-19) say "clang 19 not found; simulators will be built with g++ (slower)" ;;
            chromium) say "Chromium not found; tests that look at pages in a browser will fail" ;;
            python3-dev) say "Python's headers not found; the timeline model will not be compiled (slower)" ;;
        esac
    done
}

if [ ${#missing[@]} -gt 0 ] || [ ${#wanted[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        [ ${#missing[@]} -eq 0 ] || fail "missing: ${missing[*]} (names of Debian packages): install them with your system's package manager, then rerun"
        without "${wanted[@]}"
        wanted=()
    fi
fi
if [ ${#missing[@]} -gt 0 ] || [ ${#wanted[@]} -gt 0 ]; then
    root=()
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            root=(sudo -n)
        elif [ ${#missing[@]} -eq 0 ]; then
            without "${wanted[@]}"
            say "to install what is missing: sudo apt-get install ${wanted[*]}"
            wanted=()
        else
            fail "system packages are missing and there is no right to install them. Run this, then rerun:
    sudo apt-get update && sudo apt-get install --yes ${missing[*]} ${wanted[*]}"
        fi
    fi
fi
install_system() {
    apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 "$@"; }
    say "apt-get update"
    apt update || say "apt-get update failed; trying with the package lists that are there"
    for index in "${!wanted[@]}"; do
        if ! apt-cache show "${wanted[index]}" >/dev/null 2>&1; then
            say "this release has no ${wanted[index]}"
            without "${wanted[index]}"
            unset "wanted[index]"
        fi
    done
    if [ ${#missing[@]} -gt 0 ] || [ ${#wanted[@]} -gt 0 ]; then
        say "apt-get install ${missing[*]} ${wanted[*]}"
        apt install --yes --no-install-recommends "${missing[@]}" "${wanted[@]}" >/dev/null ||
            fail "apt-get could not install: ${missing[*]} ${wanted[*]}"
    fi
}
if [ "$what" = browser ]; then
    # who may not install it has said so, and has all tests but those
    [ ${#wanted[@]} -eq 0 ] || install_system
    exit 0
fi
# Python needs none of them but `venv`, so both are installed at the same time where that is there.
system=
if [ ${#missing[@]} -gt 0 ] || [ ${#wanted[@]} -gt 0 ]; then
    if [[ " ${missing[*]} " == *" python3"* ]]; then
        install_system
    else
        install_system &
        system=$!
    fi
fi
trap '[ -z "$system" ] || wait "$system" || true' EXIT # never breaks off what installs system packages

# -- Python ---------------------------------------------------------------------------------------------------------
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python >= 3.11"
    python=$PYTHON
else
    python=
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "Python >= 3.11 is needed, python3 is $(python3 --version 2>&1 | cut -d' ' -f2). Install one and rerun with PYTHON=/path/to/it"
fi

# Both at the same time. Does nothing when that has been done; says why when it cannot be. The search brings its own
# compiler (numba), so it does not wait for those that apt-get may still be installing.
compile_all() {
    $venv/bin/python -m meshloom.sched.papers.flexer.ready &
    local search=$!
    if [ -n "$system" ]; then
        wait "$system" || exit 1
        system=
    fi
    $venv/bin/python -m meshloom.sched.model || true
    wait $search || true
}
# The stamp is the content of all that decides what gets installed; a broken or moved environment is made anew.
content=$({
    pwd
    cat requirements.lock pyproject.toml scripts/setup.sh
} | sha256sum | cut -d' ' -f1)
if [ -x $venv/bin/python ] && new_enough $venv/bin/python && [ "$(cat $stamp 2>/dev/null)" = "$content" ]; then
    working "compiling what has changed" compile_all
    say "up to date"
    exit 0
fi
if ! { [ -x $venv/bin/python ] && new_enough $venv/bin/python && $venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear $venv
fi
rm -f $stamp
pip() { $venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input "$@"; }
say "installing the pins of requirements.lock"
# The lock names everything, so nothing is left to resolve; the check proves that it fits together. uv installs it in a
# third of pip's time. It does not read pip's settings, so it is told the indexes that they name; where it fails
# nevertheless (a proxy, a certificate of one's own), pip goes on.
setting() { $venv/bin/python -m pip config get "global.$1" 2>/dev/null || true; }
with_uv() {
    pip install "$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' requirements.lock)" || return 1
    local index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$(setting index-url)}} more=${UV_INDEX:-${PIP_EXTRA_INDEX_URL:-$(setting extra-index-url)}}
    local links=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-$(setting find-links)}}
    [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
    [ -z "$more" ] || export UV_INDEX=$more UV_INDEX_STRATEGY=unsafe-best-match # as pip looks at them
    [ -z "$links" ] || export UV_FIND_LINKS=${links// /,}
    uv pip install --no-deps --compile-bytecode --requirement requirements.lock || return 1
    uv pip install --no-deps --no-build-isolation --editable . || return 1
    uv pip check || return 1
}
uv() { env VIRTUAL_ENV="$PWD/$venv" $venv/bin/uv --quiet "$@"; }
if ! working "installing" with_uv; then
    say "uv could not install them; pip does"
    working "installing" pip install --no-deps --requirement requirements.lock
    pip install --no-deps --no-build-isolation --editable .
    pip check >/dev/null || fail "the pins of requirements.lock contradict each other: run $venv/bin/pip check"
fi
echo "$content" >$stamp
say "compiling the timeline model and the search for schedules (a minute; several on a busy machine)"
working "compiling" compile_all
say "done: $($venv/bin/python --version), $(grep -c == requirements.lock) packages"
