"""Quick studies are quick, by the rows that are kept of them."""

from __future__ import annotations

from meshloom.tb.studies.engine.page import row_file
from meshloom.tb.studies.registry import REGISTRY, SHIPPED

#: Quick studies that take longer than the five minutes of a processor that one may take, and why: area synthesises the
#: core's tile twice, each time two minutes and more.
DEAR = {"area"}


def test_quick_studies_take_five_minutes_of_a_processor() -> None:
    """By the rows that are kept, as they were measured on a machine that did other work as well."""
    seconds: dict[str, float] = {}
    for name in SHIPPED:
        study = REGISTRY.get(name)
        points = list(dict.fromkeys(study.points(False)))
        kept = row_file(study).look(points)
        assert kept.keys() == set(points), f"{name}: some of the quick study was never measured"
        seconds[name] = sum(each.line.seconds for each in kept.values())
    assert {name for name, each in seconds.items() if each > 300} == DEAR
    assert sum(seconds.values()) < 2 * 90 * 60
