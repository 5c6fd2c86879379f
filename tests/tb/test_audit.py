"""`make audit` says what it could not look up: a service that knows nothing is no proof that nothing is known."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
#: In the place of pip-audit: each service says what its file says of the packages that it is asked for.
TOOL = """#!{python}
import json, sys
from pathlib import Path
options = dict(zip(sys.argv[1::1], sys.argv[2::1]))
service = Path(__file__).with_name(options["--vulnerability-service"] + ".known")
if not service.exists():
    sys.exit("no route to host")
known = json.loads(service.read_text())
said = []
for line in Path(options["--requirement"]).read_text().split():
    name, _, version = line.partition("==")
    if name in known:
        said.append({{"name": name, "version": version, "vulns": [{{"id": each}} for each in known[name]]}})
    else:
        said.append({{"name": name, "skip_reason": "not found"}})
Path(options["--output"]).write_text(json.dumps({{"dependencies": said}}))
sys.exit(any(one.get("vulns") for one in said))
"""


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    del sys.modules["audit"]
    return module


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "pip-audit"
    path.write_text(TOOL.format(python=sys.executable))
    path.chmod(0o755)
    return path


LOCK = ["one==1.0", "Two.of_them==2.0"]


@pytest.mark.parametrize(
    ("pypi", "osv", "status", "still_open", "silent"),
    [
        ('{"jinja2": ["CVE"], "one": [], "Two.of_them": []}', None, 0, [], []),
        ('{"jinja2": ["CVE"], "one": ["CVE-1"], "Two.of_them": []}', None, 1, [], []),
        ('{"jinja2": ["CVE"], "one": []}', '{"jinja2": ["CVE"], "Two.of_them": []}', 0, [], []),
        ('{"jinja2": ["CVE"], "one": []}', None, 3, LOCK[1:], ["osv"]),
        ('{"jinja2": [], "one": [], "Two.of_them": []}', None, 3, LOCK, ["pypi", "osv"]),  # knows nothing bad at all
        ("{}", None, 3, LOCK, ["pypi", "osv"]),
        (None, '{"jinja2": ["CVE"], "one": [], "Two.of_them": ["CVE-2"]}', 1, [], ["pypi"]),
    ],
)
def test_what_could_not_be_looked_up_is_no_green(
    audit: ModuleType, tool: Path, tmp_path: Path,
    pypi: str | None, osv: str | None, status: int, still_open: list[str], silent: list[str],
) -> None:  # fmt: skip
    for name, known in (("pypi", pypi), ("osv", osv)):
        if known is not None:
            (tmp_path / f"{name}.known").write_text(known)
    result = audit.audit(LOCK, tool, tmp_path)
    assert (result.status, result.open, result.silent) == (status, still_open, silent)


def test_every_pin_of_the_lock_is_asked_for(audit: ModuleType) -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert len(audit.pins(text)) == sum("==" in line for line in text.splitlines())
    assert audit.pins("# x==1\na==1.0   # why\n\nb==2\n") == ["a==1.0", "b==2"]
    assert {"pip_audit", "cyclonedx-bom"} <= {pin.partition("==")[0] for pin in audit.pins(audit.TOOLS.read_text())}
