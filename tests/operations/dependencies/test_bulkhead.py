"""The share of a worker's pool that may call a dependency at once."""

import secrets
import time

import pytest

from operations import NotReady
from operations.dependencies import Dependency, calling
from tests.lab.services import ValkeyServer
from tests.operations.dependencies.places import a_full_bulkhead, a_pool, holders

pytestmark = pytest.mark.req("B7")


@pytest.fixture
def dependency() -> Dependency:
    return Dependency(f"test-{secrets.token_hex(4)}", connect_timeout=0.2, total_timeout=0.5)


@pytest.mark.parametrize(("size", "places"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 6), (20, 15)])
def test_its_share_is_rounded_up(dependency: Dependency, size: int, places: int) -> None:
    """B7: half of a pool of two must not stand by while all is well."""
    with a_pool(size), holders(dependency, size) as held:
        assert held == places


@pytest.mark.parametrize("waited", [0, 60, 3000])
def test_who_finds_no_place_comes_back_soon_however_long_it_has_waited(
    locks: ValkeyServer, dependency: Dependency, waited: float
) -> None:
    """B7: a place is free within a second, and who stays away is overtaken."""
    with a_full_bulkhead(dependency), calling(retry=False, waited=waited):
        refusal = dependency.refusal(waited)
        with pytest.raises(NotReady) as raised, dependency.call():
            pytest.fail("There is no place.")
    assert refusal is not None
    assert 0.5 <= refusal.delay <= 1.5
    assert 0.5 <= raised.value.delay <= 1.5
    assert dependency.refusal(waited) is None


def test_a_place_that_is_free_in_a_moment_is_waited_for(
    locks: ValkeyServer, dependency: Dependency
) -> None:
    """B7: and asking for one gives it back."""
    with a_pool(4):
        with holders(dependency, 3):
            assert dependency.refusal(0) is not None
        began = time.monotonic()
        for _ in range(10):
            assert dependency.refusal(0) is None
        with dependency.call():
            assert dependency.refusal(0) is None, "this process has one"
            with holders(dependency, 3) as held:
                assert held == 2, "asking has not given up the place that it calls in"
        assert time.monotonic() - began < 5
