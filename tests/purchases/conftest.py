"""A market for the tests of purchases."""

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from tests.lab.services import Lab, ValkeyServer
from tests.purchases.market import Market
from tests.sandbox.process import SandboxProcess, sandbox_process


@pytest.fixture(scope="package")
def market_sandbox(lab: Lab) -> Iterator[SandboxProcess]:
    """The gateway of the market."""
    with sandbox_process(lab, "market") as running:
        yield running


@pytest.fixture
def market(
    database: str,
    broker: ValkeyServer,
    locks: ValkeyServer,
    market_sandbox: SandboxProcess,
    settings: Settings,
) -> Market:
    """A market on a fresh database; the test's own process makes the attempts."""
    settings.STRIPE_API_BASE = market_sandbox.gateway_url
    market_sandbox.reset()
    return Market.opened(market_sandbox)
