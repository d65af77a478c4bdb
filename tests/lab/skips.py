"""Skips are told with their reason; under ``CI=true`` only those listed here are accepted."""

import os
import re
from collections.abc import Iterator

import pytest

#: Reasons (regular expressions, matched from their start) for which a test may be skipped
#: where everything is installed.
ALLOWED: list[str] = [
    "only root runs servers as another user",
    "no private name server here",
]

_unexpected: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    _check(report.nodeid, _reason(report.longrepr))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if os.environ.get("CI") == "true" and report.skipped:
        _check(report.nodeid, _reason(report.longrepr))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unexpected:
        terminalreporter.section("skips that CI does not accept", red=True)
        for line in _unexpected:
            terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    if _unexpected and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reason(told: object) -> str:
    """A skip is told as (path, line, reason)."""
    return str(told[2] if isinstance(told, tuple | list) else told)


def _check(nodeid: str, reason: str) -> None:
    reason = reason.removeprefix("Skipped: ")
    if not any(re.match(pattern, reason) for pattern in ALLOWED):
        _unexpected.append(f"{nodeid}: {reason}")
