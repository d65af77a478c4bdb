"""What a call that changes something is made of: checked first, run later."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.sandbox.gateway.params import Params


@dataclass(frozen=True)
class Answer:
    """An HTTP status and the object that goes with it."""

    status: int
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Action:
    """A call that passed its checks.

    ``run(key, decline)`` makes the effect under idempotency key ``key``; with ``decline``
    the card is refused whatever it is. ``charges`` tells whether it would charge a card.
    """

    run: Callable[[str | None, bool], Answer]
    charges: bool = False


#: Checks a call's parameters and path values; raises ``GatewayError``, makes no effect.
Prepare = Callable[[Params, Mapping[str, str]], Action]
#: Answers a call that only looks.
Read = Callable[[Params, Mapping[str, str]], Mapping[str, Any]]
