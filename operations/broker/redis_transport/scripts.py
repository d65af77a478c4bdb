"""The Lua scripts, by name."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

_DIRECTORY = Path(__file__).with_name("lua")


@dataclass(frozen=True)
class Script:
    text: str
    sha: str


def _load(name: str) -> Script:
    text = (_DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


TAKE = _load("take")
BURY = _load("bury")
RESTORE = _load("restore")
