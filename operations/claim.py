"""A claim: the right to work on one operation, for as long as nobody else has it."""

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from locks.cache.invalidation import collecting, drop
from operations import verbs
from operations.claimed_row import ClaimedRow
from operations.crashpoints import reach
from operations.endings import Done, Refusal
from operations.errors import ClaimLost, Refused
from operations.redaction import redact
from operations.registry import Kind, Payload
from operations.verbs import Envelope


class Claim:
    """What a handler is given: the operation, and the fence around its effects.

    A handler with local effects only (``atomic=True``) needs the fields alone: it runs in
    a transaction that commits together with ``done``. One that calls something outside
    splits itself::

        with claim.fenced():            # 1. write down what is about to happen
            reserve(...)
        answer = gateway.charge(...)    # 2. no transaction is open meanwhile
        with claim.fenced():            # 3. the last local effect and the end, together
            confirm(...)
            claim.finish({"charge": answer.id})

    It may be entered again at any of these points, and must find what it already did.
    """

    def __init__(self, row: ClaimedRow, kind: Kind) -> None:
        self._row = row
        #: A copy made by ``fork`` does not hold the claim.
        self.pid = os.getpid()
        self.kind = kind
        self.id: uuid.UUID = row.id
        self.owner_id: int | None = row.owner_id
        #: The fencing token: greater than that of every earlier claim of any operation.
        self.epoch: int = row.epoch
        #: Which attempt this is; 1 is the first since acceptance or the last replay.
        self.attempt: int = row.attempts
        self.resource: str = row.resource
        #: Validated by today's serializer once the handler runs, so that fields that were
        #: added since have their defaults.
        self.payload: Payload = row.payload
        #: What the client promised about the state of things, if it did.
        self.precondition: dict[str, Any] | None = row.precondition
        #: Something of this operation may have been done already, by an earlier attempt.
        self.effects_began: bool = row.effects_began
        #: Set when the claim or its lease is known to be lost. Looking is optional: a
        #: lost claim cannot commit anything.
        self.lost = threading.Event()
        #: The row is still ours, but somebody else has the lease: leave, uncounted.
        self.evicted = False
        #: How the attempt ended, once that is committed.
        self.ended: Done | Refusal | None = None
        #: Operations that wait for the same resource, to be published.
        self.woken: list[Envelope] = []
        self._asked: Done | Refusal | None = None

    @property
    def row(self) -> ClaimedRow:
        """The operation as it was when it was claimed."""
        return self._row

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """A transaction that commits only while the claim is held.

        The check is its last statement, so that a heartbeat need not wait behind the work.
        The same statement records what is invalidated in the cache: what the kind declares,
        and what is invalidated in here. It is dropped from the cache after the commit.

        :raises ClaimLost: somebody else has the operation; everything is rolled back
        :raises Refused: what the client promised is not true any more, and this would
            have been the first effect
        """
        if connection.in_atomic_block:
            raise RuntimeError("A fenced transaction cannot be opened inside a transaction.")
        if self.ended is not None:
            raise RuntimeError("The operation has ended; nothing can follow.")
        if self.lost.is_set() or os.getpid() != self.pid:
            raise ClaimLost(self.id)
        self._asked = None
        with transaction.atomic():
            # No longer than that: what is invalidated later on is recorded by itself.
            with collecting() as collected:
                self.check_precondition()
                yield
                invalidated = list({*self._declared_keys(), *collected.keys()})
            ended = self._seal(invalidated)
        self.effects_began = True
        self.ended = ended
        if ended is not None:
            reach("settle.committed")
        if invalidated:
            drop(invalidated)

    def finish(self, result: Any = None) -> None:
        """End as ``done`` when the fenced transaction around this call commits."""
        self._end(Done(result))

    def refuse(self, code: str, detail: str = "") -> None:
        """End as ``failed`` when the fenced transaction around this call commits.

        For a refusal after effects began: the same transaction must undo them all.
        """
        self._end(Refusal(code, redact(detail or code)))

    def check_precondition(self) -> None:
        """Before the first effect: is what the client promised still true?"""
        if self.precondition is None or self.effects_began or self.kind.precondition is None:
            return
        if not self.kind.precondition(self):
            raise Refused("precondition_failed", "What the request relied on has changed.")

    def _end(self, ending: Done | Refusal) -> None:
        if not connection.in_atomic_block:
            raise RuntimeError("finish() and refuse() belong inside 'with claim.fenced():'.")
        self._asked = ending

    def _declared_keys(self) -> list[str]:
        fields = {**self.payload, "id": self.id, "owner": self.owner_id}
        return [target.key(fields) for target in self.kind.invalidates]

    def _seal(self, invalidated: list[str]) -> Done | Refusal | None:
        """The last statement before the COMMIT: the fence, or the settling that is one."""
        ending = self._asked
        if ending is None:
            verbs.fence(self._row, invalidated)
            return None
        if isinstance(ending, Done) and self.kind.compensates:
            verbs.finish_discard(
                uuid.UUID(self._row.payload["operation"]), retention=self.kind.key_retention
            )
        self.woken = verbs.settle(
            self._row, ending, retention=self.kind.key_retention, invalidated=invalidated
        )
        reach("handler.returned")
        return ending
