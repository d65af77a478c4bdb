"""The connection to the lease server: this app's own, with short time-outs and no retries."""

import os
from typing import Any

from django.conf import settings
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry

from locks.errors import LeaseUnavailable
from locks.valkey.script import Script

Argument = str | bytes | int | float
Command = tuple[Argument, ...]

_servers: dict[tuple[str, float], "Server"] = {}

# A child must not write into its parent's socket. Dropping the connections does not end
# the parent's: redis-py shuts a socket down only in the process that opened it.
os.register_at_fork(after_in_child=_servers.clear)


def server_for(ttl: float | None = None) -> "Server":
    """The server at ``settings.LOCKS_URL``, with a time-out that suits leases of this TTL.

    That is ``settings.LOCKS_TIMEOUT`` (seconds), halved until it is below a quarter of the
    TTL; halved, so that many different TTLs share few connections.
    """
    timeout = float(getattr(settings, "LOCKS_TIMEOUT", 0.5))
    while ttl is not None and timeout > ttl / 4:
        timeout /= 2
    known = settings.LOCKS_URL, timeout
    if known not in _servers:
        _servers[known] = Server(*known)
    return _servers[known]


class Server:
    """Calls that take at most ``timeout`` seconds for each answer. Safe for threads.

    Connections are kept and used without asking first whether they still stand, since
    every call on a lease may be repeated: one that fails takes all idle ones with it.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._timeout = timeout
        self._idle: list[Any] = []
        self._options: dict[str, Any] = {
            **parse_url(url),  # type: ignore[no-untyped-call]
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "socket_keepalive": True,
            "driver_info": None,  # two round trips less for each new connection
        }
        self._make = self._options.pop("connection_class", Connection)

    def run(self, script: Script, keys: list[str], arguments: list[str | int]) -> Any:
        """Run a script by its hash: one round trip, two when the server has not seen it yet.

        Raises :class:`LeaseUnavailable`.
        """
        try:
            return self.call("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except LeaseUnavailable as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return self.call("EVAL", script.text, len(keys), *keys, *arguments)

    def call(self, *command: Argument, blocks: float = 0) -> Any:
        """One command, of which the server may hold back the answer for ``blocks`` seconds."""
        (answer,) = self.pipeline([command], blocks=blocks)
        if isinstance(answer, ResponseError):
            raise LeaseUnavailable(f"The lease server refused: {answer}", answered=True) from answer
        return answer

    def pipeline(self, commands: list[Command], blocks: float = 0) -> list[Any]:
        """Several commands in one round trip; one that fails leaves its error in the list."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._make(**self._options)
        try:
            connection.send_packed_command([b"".join(map(_packed, commands))])
            answers = [self._answer(connection, blocks) for _ in commands]
        except BaseException as error:
            # Answers that nobody read would be taken for those of the next command.
            connection.disconnect()
            if not isinstance(error, RedisError | OSError):
                raise
            self._drop_idle()
            if isinstance(error, RedisTimeout):
                raise LeaseUnavailable("The lease server did not answer in time.") from error
            raise LeaseUnavailable(f"The lease server cannot be reached: {error}") from error
        self._idle.append(connection)
        return answers

    def _drop_idle(self) -> None:
        try:
            while True:
                self._idle.pop().disconnect()
        except IndexError:
            return

    def _answer(self, connection: Any, blocks: float) -> Any:
        try:
            return connection.read_response(timeout=self._timeout + blocks)
        except ResponseError as error:
            return error


def _packed(command: Command) -> bytes:
    """As RESP. The client's own packer takes longer than the server does for the script."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        raw = part if isinstance(part, bytes) else str(part).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)
