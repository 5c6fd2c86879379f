"""What is known against the packages of requirements.lock, and a list of all that is in .venv (SBOM).

    make audit

pip-audit asks the advisories of PyPI, and those of OSV for what PyPI could not say; cyclonedx-bom writes the list, as
CycloneDX has it. Both have an environment of their own, sim_build/audit/tools, which is made on the first call. The
results are in sim_build/audit: advisories.json, sbom.json.

Exit status: 0 if every package has been looked up and nothing is known against any; 1 if something is; 3 if some could
not be looked up. A service that does not know that jinja2 2.10 is bad cannot be reached, or has no advisories: it is
asked nothing more, and what it would say counts for nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
PLACE = ROOT / "sim_build" / "audit"
TOOLS = Path(__file__).with_name("audit_requirements.txt")
#: Services, as pip-audit names them.
SERVICES = ("pypi", "osv")
#: A package that something is known against, whoever knows anything (CVE-2019-10906).
BAD = "jinja2==2.10"
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3


@dataclass
class Audit:
    """What services have said. `advisories`: by pin, what is known against it; `silent`: services that say nothing;
    `open`: pins that nobody has looked up."""

    advisories: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    silent: list[str] = field(default_factory=list[str])
    open: list[str] = field(default_factory=list[str])

    @property
    def status(self) -> int:
        if self.advisories:
            return VULNERABLE
        return UNKNOWN if self.open else CLEAN


def pins(text: str) -> list[str]:
    """`name==version` of each line of a lock."""
    return [pin for line in text.splitlines() if "==" in (pin := line.partition("#")[0].strip())]


def audit(lock: Sequence[str], command: Path, place: Path) -> Audit:
    """Looks up each pin of a lock by pip-audit (`command`), and leaves what it writes in `place`."""
    result = Audit(open=list(lock))
    for service in SERVICES:
        if not result.open:
            break
        probe = _ask(service, [BAD], command, place)
        if not probe.get(_name(BAD)):
            result.silent.append(service)
            continue
        answers = _ask(service, result.open, command, place)
        result.advisories |= {pin: some for pin in result.open if (some := answers.get(_name(pin)))}
        result.open = [pin for pin in result.open if _name(pin) not in answers]
    return result


def _name(pin: str) -> str:
    return pin.partition("==")[0].lower().replace("_", "-").replace(".", "-")


def _ask(service: str, pins: Sequence[str], command: Path, place: Path) -> Mapping[str, list[str]]:
    """By name, what a service knows against it; those that it could not look up are missing."""
    question, answer = place / f"{service}.txt", place / f"{service}.json"
    question.write_text("\n".join(pins) + "\n", encoding="utf-8")
    answer.unlink(missing_ok=True)
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--output", str(answer)]
    call = [str(command), "--requirement", str(question), "--vulnerability-service", service, *options]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    (place / f"{service}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    try:
        packages = json.loads(answer.read_text(encoding="utf-8"))["dependencies"]
    except (OSError, ValueError, KeyError):
        return {}
    return {_name(each["name"]): [some["id"] for some in each["vulns"]] for each in packages if "vulns" in each}


def tools() -> Path:
    """The folder of both tools' commands, installed if need be. Raises CalledProcessError."""
    home, stamp = PLACE / "tools", PLACE / "tools" / "stamp"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != TOOLS.read_text(encoding="utf-8"):
        print(f"audit: installing {TOOLS.name} into {home.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, "--no-deps", "--requirement", str(TOOLS)], check=True)
        stamp.write_text(TOOLS.read_text(encoding="utf-8"), encoding="utf-8")
    return home / "bin"


def say(result: Audit, count: int) -> None:
    """Prints what came of an audit of so many packages."""
    for pin, names in result.advisories.items():
        print(f"audit: {pin}: {', '.join(names)}")
    if result.silent:
        print(f"audit: no advisories could be had from {' and '.join(result.silent)} (see sim_build/audit)")
    if result.open:
        some = f": {', '.join(result.open)}" if len(result.open) < count else ""
        print(f"audit: {len(result.open)} of {count} packages NOT looked up{some}")
    if result.status == CLEAN:
        print(f"audit: nothing is known against any of {count} packages")


def main() -> int:
    """See above."""
    PLACE.mkdir(parents=True, exist_ok=True)
    commands, sbom = tools(), PLACE / "sbom.json"
    list_all = [str(commands / "cyclonedx-py"), "environment", sys.executable, "--pyproject", "pyproject.toml"]
    subprocess.run([*list_all, "--output-reproducible", "--of", "JSON", "-o", str(sbom)], cwd=ROOT, check=True)
    print(f"audit: {sbom.relative_to(ROOT)}: {len(json.loads(sbom.read_text())['components'])} packages")
    lock = pins(LOCK.read_text(encoding="utf-8"))
    result = audit(lock, commands / "pip-audit", PLACE)
    report = {"advisories": result.advisories, "silent": result.silent, "open": result.open}
    (PLACE / "advisories.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    say(result, len(lock))
    return result.status


if __name__ == "__main__":
    sys.exit(main())
