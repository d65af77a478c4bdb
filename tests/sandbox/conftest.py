"""One sandbox for the tests of the sandbox, emptied before each."""

from collections.abc import Iterator

import pytest

from tests.lab.services import Lab
from tests.sandbox.process import SandboxProcess, sandbox_process

#: Seconds that the search of this sandbox lags behind.
SEARCH_LAG = 1.0


@pytest.fixture(scope="session")
def shared_sandbox(lab: Lab) -> Iterator[SandboxProcess]:
    """A running sandbox."""
    with sandbox_process(lab, "sandbox-tests", SEARCH_LAG) as running:
        yield running


@pytest.fixture
def sandbox(shared_sandbox: SandboxProcess) -> SandboxProcess:
    """A running sandbox without faults and payments."""
    shared_sandbox.process.start()
    shared_sandbox.reset()
    return shared_sandbox
