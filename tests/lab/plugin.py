"""Points Django at the lab's servers before its settings are read (``-p tests.lab.plugin``).

The servers themselves start with the first fixture that wants them.
"""

import importlib
import os
import secrets

import pytest

pytest.register_assert_rewrite("tests.lab.services", "tests.lab.processes", "tests.lab.accepting")

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
        "EXTRA_APPS": "tests.lab.scripted",
        # What killed processes leave behind goes with the rest.
        "TMPDIR": str(_lab.directory),
        # The same order of time-outs as in production, about ten times as quick.
        "DATABASE_LOCK_TIMEOUT": "1",
        "DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "2",
        "SEKALI_CLAIM_TTL": "3",
        "SEKALI_LEASE_TTL": "4",
        "SEKALI_SOFT_TIME_LIMIT": "8",
        "SEKALI_TIME_LIMIT": "10",
        "SEKALI_VISIBILITY_TIMEOUT": "20",
        "SEKALI_RETRY_BACKOFF": "0.2,0.4,0.8,1.6",
        "SEKALI_PARK_DELAY": "0.5",
        "SEKALI_DISPATCH_INTERVAL": "0.1",
        "SEKALI_EVIDENCE_INTERVAL": "0.5",
        "SEKALI_EVIDENCE_AGE": "1",
        "SEKALI_RESEND_INTERVAL": "5",
        "SEKALI_SHUTDOWN_GRACE": "1",
        # Tests have one owner, and all of its messages in the broker.
        "SEKALI_OWNER_WINDOW": "100000",
        # Above what tests of single operations let fail.
        "SEKALI_BREAKER_MINIMUM": "25",
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
