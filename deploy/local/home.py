"""The tree's own directory ``.local``: what is kept between runs and never committed."""

import os
import secrets
from pathlib import Path

from deploy.local.account import Account


class Home:
    """``.local`` of a tree. Other users may pass through it but read nothing in it."""

    def __init__(self, path: Path) -> None:
        """Raises ``PermissionError`` when the directory belongs to another user."""
        self.path = path
        #: How to reach what runs, for shells and programs; there only while it runs.
        self.run_env = path / "run.env"
        #: The register of the processes of a run.
        self.processes = path / "processes.json"
        path.mkdir(mode=0o711, exist_ok=True)
        if path.stat().st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user (a run under sudo?)")
        path.chmod(0o711)

    def secret(self, name: str) -> str:
        """A random secret, made once and kept readable by its owner only."""
        file = self.path / "secrets" / name
        file.parent.mkdir(mode=0o700, exist_ok=True)
        if not file.exists():
            write_private(file, secrets.token_urlsafe(48))
        return file.read_text()


def write_private(file: Path, text: str, owner: Account | None = None) -> None:
    """Write a file that only its owner (None: we) can read; nobody ever sees half of it."""
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    with open(draft, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
        if owner:
            os.fchown(stream.fileno(), owner.uid, owner.gid)
        stream.write(text)
    draft.replace(file)
