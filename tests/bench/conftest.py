"""The platform on either broker, as the tests have it."""

from tests.operations.brokers.conftest import platform, rabbit_server

__all__ = ["platform", "rabbit_server"]
