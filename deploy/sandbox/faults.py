"""What goes wrong on purpose: one fault for the gateway, one for the supplier."""

import json
import random
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from deploy.sandbox.database import Database

PARTS = ("gateway", "supplier")
MODES = ("ok", "slow", "error", "drop_reply", "decline")
_LONGEST_DELAY = 3600


class BadFaultsError(ValueError):
    """The faults asked for cannot be read; the text says why."""


@dataclass(frozen=True)
class Fault:
    """One part's behaviour.

    ``delay_s`` is waited before a call that is hit acts, in every mode. ``ratio`` is the
    share of calls hit and ``count`` the most that are (``None``: no bound). ``reads``
    extends the gateway's fault from the calls that change something to those that look.
    """

    mode: str = "ok"
    delay_s: float = 0
    ratio: float = 1.0
    count: int | None = None
    seed: int = 0
    reads: bool = False


NO_FAULT = Fault()


class Faults:
    """The faults in force, kept over a restart.

    Which calls a ratio strikes follows from ``seed`` and the call's number alone, so that
    a run can be repeated.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def replace(self, content: Any) -> None:
        """Set all faults; a part left out is ``ok``.

        Raises :class:`BadFaultsError` and changes nothing when ``content`` is malformed.
        """
        if not isinstance(content, dict):
            raise BadFaultsError("The body must be a JSON object.")
        _refuse_unknown(content, PARTS, "part")
        chosen = {part: _read(part, content[part]) for part in PARTS if part in content}
        with self._database.transaction():
            self._database.execute("DELETE FROM fault")
            for part, fault in chosen.items():
                self._database.execute(
                    "INSERT INTO fault (part, setting) VALUES (?, ?)",
                    part,
                    json.dumps(asdict(fault)),
                )

    def clear(self) -> None:
        """Everything is ``ok`` again."""
        self._database.execute("DELETE FROM fault")

    def show(self) -> dict[str, dict[str, Any]]:
        """The fault of every part, with the number of calls it has hit."""
        shown: dict[str, dict[str, Any]] = {}
        for part in PARTS:
            fault, _, hits = self._stored(part)
            shown[part] = {**asdict(fault), "hits": hits}
        return shown

    def draw(self, part: str, modes: Collection[str], *, reading: bool = False) -> Fault:
        """The fault that this call meets; ``NO_FAULT`` when it is spared.

        ``modes`` are those that mean something for the call; others neither strike it nor
        count it.
        """
        fault, calls, hits = self._stored(part)
        if fault.mode not in modes or (reading and not fault.reads):
            return NO_FAULT
        spent = fault.count is not None and hits >= fault.count
        struck = not spent and _chance(fault.seed, calls) < fault.ratio
        self._database.execute(
            "UPDATE fault SET calls = calls + 1, hits = hits + ? WHERE part = ?", struck, part
        )
        return fault if struck else NO_FAULT

    def _stored(self, part: str) -> tuple[Fault, int, int]:
        row = self._database.row("SELECT setting, calls, hits FROM fault WHERE part = ?", part)
        if row is None:
            return NO_FAULT, 0, 0
        return Fault(**json.loads(row["setting"])), row["calls"], row["hits"]


def _chance(seed: int, call: int) -> float:
    return random.Random(f"{seed}:{call}").random()  # noqa: S311  # repeatable, not secret


def _read(part: str, content: Any) -> Fault:
    if not isinstance(content, dict):
        raise BadFaultsError(f"{part} must be an object.")
    known = [name for name in asdict(NO_FAULT) if name != "reads" or part == "gateway"]
    _refuse_unknown(content, known, f"member of {part}")
    fault = Fault(**content)
    if fault.mode not in MODES:
        raise BadFaultsError(f"{part}.mode must be one of {', '.join(MODES)}.")
    if not _is_number(fault.delay_s, 0, _LONGEST_DELAY):
        raise BadFaultsError(f"{part}.delay_s must be seconds from 0 to {_LONGEST_DELAY}.")
    if not _is_number(fault.ratio, 0, 1):
        raise BadFaultsError(f"{part}.ratio must be a number from 0 to 1.")
    if fault.count is not None and not (_is_whole(fault.count) and fault.count > 0):
        raise BadFaultsError(f"{part}.count must be a whole number above 0, or null.")
    if not _is_whole(fault.seed):
        raise BadFaultsError(f"{part}.seed must be a whole number.")
    if not isinstance(fault.reads, bool):
        raise BadFaultsError(f"{part}.reads must be true or false.")
    return fault


def _refuse_unknown(content: dict[Any, Any], known: Collection[str], what: str) -> None:
    for name in content:
        if name not in known:
            raise BadFaultsError(f"Unknown {what}: {name}. Known: {', '.join(known)}.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object, least: float, most: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value <= most
