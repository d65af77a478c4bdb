"""Which user embedded servers run as, and what that user can reach."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Account:
    """A user of the system with its own group."""

    name: str
    uid: int
    gid: int

    @property
    def subprocess_options(self) -> dict[str, object]:
        """Keyword arguments of ``subprocess.run`` that make a child run as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def server_account() -> Account | None:
    """Whom servers run as: an unprivileged user under root, otherwise None (ourselves).

    PostgreSQL refuses to run as root. Raises ``RuntimeError`` when the system has neither
    ``nobody`` nor ``daemon``.
    """
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "daemon"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, user.pw_uid, user.pw_gid)
    raise RuntimeError("no unprivileged user (nobody, daemon) to run servers as; run as a user")


def can_use(account: Account | None, *paths: Path) -> bool:
    """Whether the user can enter each directory and run each file."""
    # Asking the kernel as that user covers modes, access lists and mounts alike.
    options = account.subprocess_options if account else {}
    script = 'for p; do test -x "$p" && test -r "$p" || exit 1; done'
    command = ["/bin/sh", "-c", script, "sh", *map(str, paths)]
    done = subprocess.run(command, cwd="/", check=False, **options)  # type: ignore[call-overload]
    return bool(done.returncode == 0)
