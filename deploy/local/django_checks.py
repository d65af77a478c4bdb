"""Django's own part of ``make lint``: migrations are complete, production settings are safe.

Needs no database: neither check asks one a question.
"""

import os
import secrets
import subprocess
import sys

from deploy.local.launcher import TREE

#: Settings as an installation behind a TLS proxy has them. Nothing listens on port 1.
_PRODUCTION = {
    "SECRET_KEY": secrets.token_urlsafe(50),
    "DEBUG": "0",
    "ALLOWED_HOSTS": "sekali.example.org",
    "CORS_ORIGINS": "https://shop.example.org",
    "BEHIND_TLS": "1",
    "DATABASE_URL": "postgresql://sekali@127.0.0.1:1/sekali",
    "BROKER_URL": "redis://127.0.0.1:1/0",
    "LOCKS_URL": "redis://127.0.0.1:1/1",
    "CACHE_URL": "redis://127.0.0.1:1/2",
    "SUPPLIER_URL": "https://supplier.example.org",
    "STRIPE_API_KEY": "sk_test_production_check",
}
_RUNS = (
    ("makemigrations", "--check", "--dry-run"),
    ("check", "--deploy", "--fail-level", "WARNING"),
)


def main() -> int:
    kept = {"PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV"}
    env = {name: value for name, value in os.environ.items() if name in kept} | _PRODUCTION
    # makemigrations also compares with the history in a database, if it finds one.
    ignored = "ignore:Got an error checking a consistent migration history:RuntimeWarning"
    failed = 0
    for arguments in _RUNS:
        print("manage.py", *arguments, flush=True)
        command = [sys.executable, "-W", ignored, "manage.py", *arguments]
        failed += subprocess.run(command, cwd=TREE, env=env, check=False).returncode != 0
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
