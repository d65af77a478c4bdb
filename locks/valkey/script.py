"""The Lua scripts, each in a file of its own that documents its keys and arguments."""

import hashlib
from pathlib import Path


class Script:
    """The text of ``lua/<name>.lua`` and the hash by which a server knows it."""

    def __init__(self, name: str, package: str = __file__) -> None:
        """:param package: a file beside the directory ``lua``"""
        self.text = (Path(package).parent / "lua" / f"{name}.lua").read_text(encoding="utf-8")
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
