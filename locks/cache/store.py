"""The calls to the cache server, through django-redis's client.

=====================  ======  ========================================================
``<key>``              string  a value (``envelope.py``); lives for its TTL and what it
                               may be served stale
``<key>!fill``         string  the random token of whoever is loading it; lives for as
                               long as that may take
``<name>@<revision>``  string  the random version of a whole entry, where it has one
``loads``              zset    who has a place among the loads that nobody stores
``cache-counts``       hash    the counters of all processes (``counts.py``); no TTL
=====================  ======  ========================================================

Under the cache's ``KEY_PREFIX``, and all on the primary. Every call is one round trip (two
when the server has forgotten a script) and raises :class:`CacheAway`, at once while the
server is being left alone.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.core.cache import caches
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from locks.cache import counts
from locks.cache.breaker import breaker_for
from locks.cache.errors import CacheAway
from locks.cache.keys import token_of
from locks.valkey.script import Script

log = logging.getLogger(__name__)

ALIAS = "default"
LOADS = "loads"
COUNTS = "cache-counts"

_BEGIN = Script("begin", __file__)
_FILL = Script("fill", __file__)
_ABANDON = Script("abandon", __file__)
_ENTER = Script("enter", __file__)
_TEXTS = {script.sha: script.text for script in (_BEGIN, _FILL, _ABANDON, _ENTER)}

Command = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Somebody has loaded the value meanwhile."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Mine:
    """The caller is to load it."""

    version: bytes


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody else is loading it. ``raw`` is the value past its TTL, if there is one."""

    raw: bytes


Answer = Loaded | Mine | Taken
_ANSWERS: dict[bytes, type[Loaded | Mine | Taken]] = {
    b"fresh": Loaded,
    b"mine": Mine,
    b"taken": Taken,
}


@dataclass(frozen=True, slots=True)
class Fill:
    """A loaded value, the version its loading began under, and how long it is good, in s."""

    key: str
    version: bytes
    body: bytes
    ttl: float
    stale: float


#: For each of django-redis's pools the connections that are ours and not in use.
_idle: "dict[Any, list[Any]]" = {}

# A child must not write into its parent's socket; it makes its own.
os.register_at_fork(after_in_child=_idle.clear)


class Store:
    """The cache's server, as this thread's django-redis backend knows it."""

    def __init__(self) -> None:
        backend = cast("Any", caches[ALIAS])
        self._client: Any = backend.client
        self._named: Callable[[str], str] = self._client.make_key
        location = backend._server
        self._breaker = breaker_for(location if isinstance(location, str) else location[0])

    # --- values -------------------------------------------------------------------------

    def read(
        self, keys: Sequence[str], version_key: str = ""
    ) -> tuple[list[bytes | None], bytes | None]:
        """The values of keys, and the version beside them (``b"-"`` if there is no key)."""
        if version_key:
            *found, version = self._call("MGET", *map(self._named, [*keys, version_key]))
            return found, version
        return self._call("MGET", *map(self._named, keys)), b"-"

    def begin(
        self,
        keys: Sequence[str],
        token: str,
        lease: float,
        *,
        ttl: float,
        stale: float,
        version_key: str = "",
        new_version: str = "",
        version_ttl: float = 0,
    ) -> list[Answer]:
        """Take over the loading of each key, if nobody has (``lua/begin.lua``); times in s."""
        rest = (token, _ms(lease), _ms(ttl), int(stale * 1000), new_version, _ms(version_ttl))
        answers = self._pipeline(
            [_run(_BEGIN, self._trio(key, version_key), *rest) for key in keys]
        )
        return [_ANSWERS[kind](value) for kind, value in answers]

    def fill(self, fills: Sequence[Fill], token: str, version_key: str = "") -> list[bool]:
        """Store each, if its token is still there (``lua/fill.lua``); whether it was stored."""
        commands = [
            _run(
                _FILL,
                self._trio(fill.key, version_key),
                *(token, fill.version, _ms(fill.ttl), _ms(fill.stale), fill.body),
            )
            for fill in fills
        ]
        return [answer == 1 for answer in self._pipeline(commands)]

    def abandon(self, keys: Sequence[str], token: str) -> None:
        """Let somebody else load these."""
        self._pipeline([_run(_ABANDON, [self._named(token_of(key))], token) for key in keys])

    def drop(self, keys: Sequence[str]) -> None:
        """Delete values (or versions) and the tokens of whoever is loading them."""
        self._call("DEL", *(self._named(name) for key in keys for name in (key, token_of(key))))

    def encoded(self, value: Any) -> bytes:
        """A value as django-redis would store it."""
        body: bytes = self._client.encode(value, allow_int=False)
        return body

    def decoded(self, body: bytes) -> Any:
        """What :meth:`encoded` was given, as far as the serializer keeps types."""
        return self._client.decode(body)

    # --- loads that nobody stores -------------------------------------------------------

    def enter(self, name: str, lease: float, places: int) -> bool:
        """Take one of the places for them; ``lease`` in s."""
        command = _run(_ENTER, [self._named(LOADS)], name, _ms(lease), places)
        return self._pipeline([command]) == [1]

    def leave(self, name: str) -> None:
        """Give the place back."""
        self._call("ZREM", self._named(LOADS), name)

    # --- for operators ------------------------------------------------------------------

    def random_keys(self, number: int) -> list[str]:
        """Keys picked at random by the server: some twice, and some that are none of ours."""
        prefix = self._named("")
        names = [name.decode() for name in self._pipeline([("RANDOMKEY",)] * number) if name]
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def totals(self) -> dict[str, int]:
        """What all processes have counted and sent, by ``entry:name``."""
        flat = self._call("HGETALL", self._named(COUNTS))
        return {
            name.decode(): int(amount) for name, amount in zip(flat[::2], flat[1::2], strict=True)
        }

    @property
    def is_resting(self) -> bool:
        """Whether the server is being left alone, so that every call would raise."""
        return self._breaker.is_open

    # --- on the wire --------------------------------------------------------------------

    def _trio(self, key: str, version_key: str) -> list[str]:
        names = [self._named(key), self._named(token_of(key))]
        return [*names, self._named(version_key)] if version_key else names

    def _call(self, *command: Any) -> Any:
        return self._pipeline([command])[0]

    def _pipeline(self, commands: list[Command]) -> list[Any]:
        if not self._breaker.may_ask():
            raise CacheAway("It did not answer a moment ago.")
        counted = counts.due()
        try:
            answers = self._answers(commands, counted)
        except (RedisError, OSError) as error:
            self._breaker.failed()
            if counted:
                counts.give_back(counted)
            log.warning("The cache does not answer: %s: %s", type(error).__name__, error)
            raise CacheAway(str(error)) from error
        self._breaker.succeeded()
        for answer in answers:
            if isinstance(answer, ResponseError):
                log.warning("The cache refused: %s", answer)
                raise CacheAway(str(answer)) from answer
        return answers

    def _answers(self, commands: list[Command], counted: Mapping[str, int] | None) -> list[Any]:
        sent = commands
        if counted:
            name = self._named(COUNTS)
            sent = [*commands, *(("HINCRBY", name, *count) for count in counted.items())]
        answers = self._send(sent)[: len(commands)]
        forgotten = [at for at, said in enumerate(answers) if isinstance(said, NoScriptError)]
        if forgotten:
            again = self._send([_in_full(commands[at]) for at in forgotten])
            for at, answer in zip(forgotten, again, strict=True):
                answers[at] = answer
        return answers

    def _send(self, commands: list[Command]) -> list[Any]:
        """On one of django-redis's connections, with less ado than its client makes of it.

        A kept connection is used without asking first whether it still stands. One that
        turns out to have been closed, or to lead to a replica, is replaced once: nothing
        here does harm twice.
        """
        pool = self._client.get_client(write=True).connection_pool
        idle = _idle.get(pool)
        if idle is None:
            idle = _idle.setdefault(pool, [])
        try:
            connection, kept = idle.pop(), True
        except IndexError:
            connection, kept = pool.get_connection(), False
        try:
            try:
                answers = _exchange(connection, commands)
            except (RedisError, OSError) as error:
                if not kept or isinstance(error, RedisTimeout):
                    raise
                # Whatever closed it has closed the others.
                while idle:
                    other = idle.pop()
                    other.disconnect()
                    pool.release(other)
                answers = _exchange(connection, commands)
        except BaseException:
            pool.release(connection)
            raise
        idle.append(connection)
        return answers


def _exchange(connection: Any, commands: list[Command]) -> list[Any]:
    """Connects first, if need be."""
    try:
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        return [_answer(connection) for _ in commands]
    except BaseException:
        # Answers that nobody read would be taken for those of the next command.
        connection.disconnect()
        raise


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ReadOnlyError:
        # It was the primary once. Only a new connection finds the one that is so now.
        raise
    except ResponseError as error:
        return error


def _run(script: Script, keys: list[str], *arguments: Any) -> Command:
    return ("EVALSHA", script.sha, len(keys), *keys, *arguments)


def _in_full(command: Command) -> Command:
    return ("EVAL", _TEXTS[command[1]], *command[2:])


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
