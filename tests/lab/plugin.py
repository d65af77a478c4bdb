"""Points Django at the lab's servers before its settings are read (``-p tests.lab.plugin``).

The servers themselves start with the first fixture that wants them.
"""

import importlib
import os
import secrets

import pytest

pytest.register_assert_rewrite("tests.lab")

from tests.lab.services import Lab  # noqa: E402

_lab = Lab()

# Never those of the shell: tests empty what these point at.
os.environ.update(_lab.environment())
os.environ.update(
    {
        "SECRET_KEY": secrets.token_urlsafe(50),
        "DEBUG": "0",
        "ALLOWED_HOSTS": "localhost,127.0.0.1,testserver",
        "STRIPE_API_KEY": "sk_test_sandbox",
        "STRIPE_API_BASE": "",
        "SUPPLIER_URL": "",
        "SENTRY_DSN": "",
        "SEKALI_ROLE": "manage",
    }
)


def lab() -> Lab:
    """The servers of this run."""
    return _lab


def pytest_configure(config: pytest.Config) -> None:
    # Later than pytest-django, so that its set-up of the database is replaced.
    config.pluginmanager.register(importlib.import_module("tests.lab.fixtures"), "lab-fixtures")


def pytest_unconfigure() -> None:
    _lab.close()
