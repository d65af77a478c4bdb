"""The state that all processes share, on the server of the leases.

It is not needed: a server that does not answer is left alone for a while, and each
process judges for itself.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from operations.dependencies.policy import Answer, Breaker, Budget, Description, Look

log = logging.getLogger(__name__)

#: Seconds for which a server that did not answer is not asked again.
REST = 2.0
_LUA = Path(__file__).parent / "lua"


class Unshared(Exception):
    """The server does not answer, or is being left alone."""


class SharedGate:
    """One dependency's gate, the same for all processes.

    :param probe: seconds after which a probe that reported nothing is given up
    """

    def __init__(self, name: str, breaker: Breaker, budget: Budget, probe: float) -> None:
        self._key = f"sekali:dependency:{name}"
        self._policy = json.dumps(
            {
                "window": breaker.window * 1000,
                "minimum": breaker.minimum,
                "ratio": breaker.ratio,
                "cooldown": breaker.cooldown * 1000,
                "longest_cooldown": breaker.longest_cooldown * 1000,
                "probe": probe * 1000,
                "ramp_start": breaker.ramp_start,
                "ramp_doubling": breaker.ramp_doubling * 1000,
                "ramp": breaker.ramp * 1000,
                "budget_share": budget.share,
                "budget_floor": budget.floor,
                "budget_window": budget.window * 1000,
                # As long as anything in it may matter.
                "kept": round(
                    1000
                    * (
                        2 * breaker.longest_cooldown
                        + breaker.window
                        + breaker.ramp
                        + budget.window
                        + probe
                    )
                ),
            }
        )

    def admit(self, who: str, *, first: bool, retry: bool, places: int, worker: str) -> Answer:
        """May ``who``, a name used once, call?

        :param places: how many may call at once in its worker; 0: any number
        :raises Unshared: nobody knows
        """
        asked = who, int(first), int(retry), places, worker
        verdict, wait = _server().run("admit", self._key, self._policy, *asked)
        return Answer(verdict.decode(), int(wait) / 1000)

    def report(self, who: str, result: str, *, wished: float = 0) -> str:
        """What became of the call: ``ok``, ``bad`` or ``none``. Returns ``opened``,
        ``closed`` or an empty string.

        :raises Unshared: nobody was told
        """
        said: bytes = _server().run(
            "report", self._key, self._policy, who, result, round(wished * 1000)
        )
        return said.decode()

    def describe(self) -> Description:
        """
        :raises Unshared: nobody knows
        """
        state, wait, rate, ok, bad, retries, allowed, *calls = _server().run(
            "describe", self._key, self._policy
        )
        under_way = [call.decode().split(" ", 2)[1:] for call in calls]
        return Description(
            state=state.decode(),
            wait=float(wait) / 1000,
            rate=float(rate),
            succeeded=int(ok),
            failed=int(bad),
            retries=int(retries),
            retries_allowed=float(allowed),
            calls=[(worker, int(places)) for places, worker in under_way],
        )

    def look(self) -> Look:
        """
        :raises Unshared: nobody knows
        """
        state, number = _server().run("look", self._key, self._policy)
        match state.decode():
            case "open":
                return Look("open", wait=int(number) / 1000)
            case "ramp":
                return Look("ramp", rate=float(number))
            case other:
                return Look(other)


class _Server:
    def __init__(self, url: str, timeout: float) -> None:
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
        )
        state = (_LUA / "state.lua").read_text(encoding="utf-8")
        self._scripts: dict[str, Callable[..., Any]] = {
            name: self._client.register_script(
                state + (_LUA / f"{name}.lua").read_text(encoding="utf-8")
            )
            for name in ("admit", "report", "look", "describe")
        }
        self._lock = threading.Lock()
        self._ask_again_at = 0.0

    def run(self, script: str, key: str, *arguments: object) -> Any:
        with self._lock:
            if time.monotonic() < self._ask_again_at:
                raise Unshared
        try:
            return self._once_more(lambda: self._scripts[script](keys=[key], args=arguments))
        except (RedisError, OSError) as error:
            log.warning("Breakers are each process's own for %s s: %s", REST, error)
            with self._lock:
                self._ask_again_at = time.monotonic() + REST
            raise Unshared from error

    def _once_more(self, call: Callable[[], Any]) -> Any:
        """A kept connection may have died since; that is found out by using it."""
        try:
            return call()
        except redis.ConnectionError:
            return call()


@cache
def _server_at(url: str, timeout: float) -> _Server:
    return _Server(url, timeout)


def _server() -> _Server:
    return _server_at(settings.LOCKS_URL, settings.LOCKS_TIMEOUT)
