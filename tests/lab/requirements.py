"""Which test shows which requirement: ``python -m tests.lab.requirements`` writes the page.

A test says what it proves by naming the ids in its docstring.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "requirements.md"
ID = re.compile(r"\b([A-I]\d{1,2})\b")

#: Each requirement in a few words, and the page or file to read about it.
REQUIREMENTS = {
    "A1": ("a POST is answered at once", "architecture.md"),
    "A2": ("keys survive restarts", "architecture.md"),
    "A3": ("parallel requests make one operation", "architecture.md"),
    "A4": ("a replay gets the operation, other input an error", "guarantees.md"),
    "A5": ("keys are kept for a published time", "guarantees.md"),
    "A6": ("incidental fields do not count", "architecture.md"),
    "A7": ("nothing is lost between commit and publish", "guarantees.md"),
    "A8": ("status is true, and cheap to poll", "architecture.md"),
    "A9": ("requests from outdated pages are refused", "guarantees.md"),
    "A10": ("replays are answered over the limit, too", "architecture.md"),
    "A11": ("load can be shed", "dependencies.md"),
    "B1": ("any number of deliveries, one effect", "guarantees.md"),
    "B2": ("each point of death is known and tested", "guarantees.md"),
    "B3": ("time-outs in order, by system check", "guarantees.md"),
    "B4": ("long work keeps claim and lease", "architecture.md"),
    "B5": ("transport and business errors told apart", "guarantees.md"),
    "B6": ("backoff with jitter, then a dead letter", "guarantees.md"),
    "B7": ("breakers and controls", "dependencies.md"),
    "B8": ("poison ends as a dead letter", "guarantees.md"),
    "B9": ("payloads are small", "architecture.md"),
    "B10": ("order, where it matters", "guarantees.md"),
    "B11": ("drift is found", "dependencies.md"),
    "B12": ("Redis, Valkey or RabbitMQ by one setting", "brokers.md"),
    "C1": ("dead letters tell what is needed", "architecture.md"),
    "C2": ("categories of failure", "guarantees.md"),
    "C3": ("review with reasons", "architecture.md"),
    "C4": ("replay is safe", ""),
    "C5": ("a dead-letter queue in the broker", "brokers.md"),
    "D1": ("owner token and TTL", "../locks/README.md"),
    "D2": ("loss is noticed, and harmless", "guarantees.md"),
    "D3": ("two backends, and when to use none", "../locks/README.md"),
    "D4": ("old leases are listed", "../locks/README.md"),
    "D5": ("lock metrics", "../locks/README.md"),
    "E1": ("caches are declared", "cache.md"),
    "E2": ("invalidate after commit only", "cache.md"),
    "E3": ("no stale fill", "cache.md"),
    "E4": ("lost invalidations are repaired", "cache.md"),
    "E5": ("no stampede", "cache.md"),
    "E6": ("versioned keys", "cache.md"),
    "E7": ("cache down, answers right", "cache.md"),
    "E8": ("mismatches are found", "cache.md"),
    "F1": ("conditional updates, CHECK constraints", "architecture.md"),
    "F2": ("one purchase, charge and grant an operation", "architecture.md"),
    "G1": ("inventory sync, end to end", "guarantees.md"),
    "G2": ("purchase, end to end", "guarantees.md"),
    "H1": ("metrics", ""),
    "H2": ("ids in every log line", "architecture.md"),
    "H3": ("alerts", ""),
    "H4": ("runbook", ""),
    "H5": ("checklists", ""),
    "H6": ("admin, Flower, REST", "architecture.md"),
    "I1": ("failures, automated", "guarantees.md"),
    "I2": ("negative controls", "guarantees.md"),
}


def proofs() -> dict[str, list[str]]:
    """For each requirement the test files in which a docstring names it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        ids = {id for docstring in _docstrings_in(path) for id in ID.findall(docstring)}
        for id in ids:
            found[id].append(str(path.relative_to(ROOT)))
    return found


def page() -> str:
    """The text of ``docs/requirements.md``."""
    shown = proofs()
    lines = [
        "# Requirements",
        "",
        "Made by `python -m tests.lab.requirements`. The tests of a file say in their docstrings",
        "which requirements they show.",
        "",
        "| id | what | shown by | page |",
        "| --- | --- | --- | --- |",
    ]
    for id, (what, where) in REQUIREMENTS.items():
        tests = " ".join(f"`{path}`" for path in shown.get(id, [])) or "not yet"
        link = f"[{where}]({where})" if where else ""
        lines.append(f"| {id} | {what} | {tests} | {link} |")
    return "\n".join(lines) + "\n"


def _docstrings_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield ast.get_docstring(node) or ""


if __name__ == "__main__":
    PAGE.write_text(page())
