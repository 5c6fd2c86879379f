"""Results as JUnit XML, for what shows test reports."""

from __future__ import annotations

from typing import Any

from meshloom.sched.support.text import printable

from ..results.schema import Results, Status
from .row_tables import chip_name


def junit(results: Results) -> str:
    """JUnit XML: one test case per row, and one for the bound that holds over the whole run."""
    from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

    suite = TestSuite(f"meshloom {results.run}")
    suite.timestamp = results.started.isoformat()
    for name, version in results.environment.items():
        suite.add_property(printable(name), printable(version))
    for row in results.rows:
        case = TestCase(
            printable(row.workload),
            printable(f"meshloom.{chip_name(row, results.rows)}.{row.scheduler}.{row.simulator}"),
            row.cpu_seconds,
        )
        if row.status in (Status.FAILED, Status.FAULT):
            case.result = [Error(printable(row.reason), row.status)]
        elif row.status is not Status.PASSED:
            case.result = [Failure(printable(row.reason), row.status)]
        suite.add_testcase(case)
    whole = TestCase("whole run", "meshloom.run", results.wall_seconds)
    rows = {f"{row.workload}: {row.reason}" for row in results.rows}
    reasons = [reason for reason in results.summary.reasons if reason not in rows]
    if reasons:
        whole.result = [Failure(printable("; ".join(reasons)), "run")]
    suite.add_testcase(whole)
    document: Any = JUnitXml("meshloom")
    document.add_testsuite(suite)
    text = document.tostring()
    body = text.decode() if isinstance(text, bytes) else text
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'
