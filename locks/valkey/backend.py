"""Leases as keys with a TTL on a Valkey or Redis server."""

import json
import random
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from locks import counts, process
from locks.backend import Claim, Granted, Held, HeldLease, Release
from locks.errors import LeaseUnavailable
from locks.fences import next_block
from locks.valkey import keys
from locks.valkey.script import Script
from locks.valkey.server import Command, Server, server_for

_ACQUIRE = Script("acquire")
_RENEW = Script("renew")
_RELEASE = Script("release")

#: How many blocks of fences one acquire asks for before it gives up. More than one is
#: needed only if the server is flushed or replaced in between.
_BLOCKS = 3

#: Seconds between the tries of two waiters when a lease runs out without a release.
_SPREAD = 0.01

_HELD_FIELDS = ("owner", "who", "fence", "since")


class ValkeyBackend:
    """See :class:`locks.backend.Backend`; the keys are listed in ``valkey/keys.py``."""

    def acquire(self, claim: Claim, *, fenced: bool, wait: float) -> Granted | Held:
        block = ""
        taken = counts.take()
        try:
            for _ in range(1 + _BLOCKS):
                answer = self._ask(claim, fenced, wait, block, counts.flat(taken))
                if answer[0] != b"block":
                    break
                block = "{} {} {}".format(*next_block(), answer[1].decode())
            else:
                raise LeaseUnavailable("The lease server keeps losing its fences.", answered=True)
        except BaseException:
            counts.give_back(taken)
            raise
        if answer[0] == b"granted":
            return Granted(int(answer[1]))
        return Held(remaining=answer[1] / 1000, waiting=answer[2])

    def _ask(
        self,
        claim: Claim,
        fenced: bool,
        wait: float,
        block: str,
        counted: list[str | int],
    ) -> Any:
        return server_for(claim.ttl).run(
            _ACQUIRE,
            [keys.lease(claim.key), keys.waiting(claim.key), keys.FENCE, keys.COUNTS],
            [
                claim.owner,
                _ms(claim.ttl),
                _ms(wait),
                process.described(),
                secrets.token_hex(8) if fenced else "",
                block,
                *counted,
            ],
        )

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        server = server_for(min(claim.ttl for claim in claims))
        answers = server.pipeline([_renewal("EVALSHA", _RENEW.sha, claim) for claim in claims])
        if any(isinstance(answer, NoScriptError) for answer in answers):
            answers = server.pipeline([_renewal("EVAL", _RENEW.text, claim) for claim in claims])
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise LeaseUnavailable(f"The lease server refused: {answer}", answered=True)
        return [answer == 1 for answer in answers]

    def release(self, key: str, owner: str) -> Release:
        taken = counts.take()
        try:
            freed = server_for().run(
                _RELEASE,
                [keys.lease(key), keys.waiting(key), keys.wake(key), keys.COUNTS],
                [owner, *counts.flat(taken)],
            )
        except BaseException:
            counts.give_back(taken)
            raise
        return {1: Release.DONE, 0: Release.ABSENT, -1: Release.FOREIGN}[freed]

    def wait(self, claim: Claim, held: Held, seconds: float) -> None:
        """Wait for a release, or for the holder's TTL to pass.

        The server hands a release to one waiter, the one that has waited longest. When
        the holder dies instead, all come back after its TTL, one after the other.
        """
        spread = random.uniform(0, _SPREAD * (held.waiting + 1))  # noqa: S311
        seconds = max(0.001, min(seconds, held.remaining + spread))
        server_for(claim.ttl).call("BLPOP", keys.wake(claim.key), seconds, blocks=seconds)

    def leave(self, claim: Claim) -> None:
        server_for(claim.ttl).call("ZREM", keys.waiting(claim.key), claim.owner)

    def held(self) -> Iterator[HeldLease]:
        server = server_for()
        cursor = b"0"
        while True:
            cursor, found = server.call("SCAN", cursor, "MATCH", keys.LEASES + "*", "COUNT", 500)
            if found:
                yield from _describe(server, found)
            if cursor == b"0":
                return

    def counts(self) -> dict[str, int]:
        answer = server_for().call("HGETALL", keys.COUNTS)
        return {
            name.decode(): int(number)
            for name, number in zip(answer[::2], answer[1::2], strict=True)
        }


def _describe(server: Server, found: list[bytes]) -> Iterator[HeldLease]:
    commands: list[Command] = [("TIME",)]
    for name in found:
        commands += [("HMGET", name, *_HELD_FIELDS), ("PTTL", name)]
    (seconds, microseconds), *answers = server.pipeline(commands)
    now = int(seconds) + int(microseconds) / 1e6
    for name, fields, left in zip(found, answers[::2], answers[1::2], strict=True):
        if left < 0:
            continue  # it ended since the scan
        owner, who, fence, since = (field.decode() for field in fields)
        host, pid, process_name = json.loads(who)
        yield HeldLease(
            key=name.decode().removeprefix(keys.LEASES),
            owner=owner,
            host=host,
            pid=pid,
            process=process_name,
            fence=int(fence),
            age=max(0.0, now - int(since) / 1000),
            remaining=left / 1000,
        )


def _renewal(verb: str, script: str, claim: Claim) -> Command:
    return (verb, script, 1, keys.lease(claim.key), claim.owner, _ms(claim.ttl))


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
