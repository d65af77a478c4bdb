"""How much the dispatcher may send: nothing towards what is down, little while it recovers."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from operations import registry
from operations.dependencies import Dependency, registered
from operations.registry import Kind
from operations.verbs import Envelope

#: Operations a second that are sent towards a dependency that one of them is to try.
PROBE_RATE = 1.0


class Grant(NamedTuple):
    """At most ``most`` operations of these kinds may be sent now; None: any number."""

    kinds: list[str]
    most: int | None


class Outflow:
    """Watches the breakers of all kinds, from round to round."""

    def __init__(self) -> None:
        self._dependencies = {kind.name: registered(kind.dependencies) for kind in registry.kinds()}
        self._credits: dict[str, _Credit] = defaultdict(_Credit)

    def grants(self, kinds: list[Kind]) -> Iterator[Grant]:
        """What may be sent of these kinds. Tell :meth:`sent` what was."""
        free: list[str] = []
        slowed: dict[tuple[str, ...], list[str]] = defaultdict(list)
        rates: dict[str, float | None] = {}
        for kind in kinds:
            for dependency in self._dependencies[kind.name]:
                if dependency.name not in rates:
                    rates[dependency.name] = _rate_towards(dependency)
            names = [dependency.name for dependency in self._dependencies[kind.name]]
            limiting = tuple(name for name in names if rates[name] is not None)
            (slowed[limiting] if limiting else free).append(kind.name)
        if free:
            yield Grant(free, None)
        for limiting, held in slowed.items():
            yield Grant(held, min(self._credits[name].at(rates[name] or 0) for name in limiting))

    def sent(self, envelopes: list[Envelope]) -> None:
        """These are about to be sent."""
        for envelope in envelopes:
            for dependency in self._dependencies[envelope.kind]:
                if dependency.name in self._credits:
                    self._credits[dependency.name].spend(1)


class _Credit:
    """Grows with time at a rate, up to a second's worth."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._at = time.monotonic()

    def at(self, rate: float) -> int:
        now = time.monotonic()
        self._amount = min(max(1.0, rate), self._amount + rate * (now - self._at))
        if rate == 0:
            self._amount = 0
        self._at = now
        return int(self._amount)

    def spend(self, count: int) -> None:
        self._amount = max(0.0, self._amount - count)


def _rate_towards(dependency: Dependency) -> float | None:
    """Operations a second that may be sent towards it; None: any number."""
    seen = dependency.look()
    match seen.state:
        case "open":
            return 0
        case "half":
            return PROBE_RATE
        case "ramp":
            return seen.rate
        case _:
            return None
