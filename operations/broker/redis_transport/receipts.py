"""Which messages this channel has taken and not yet answered for."""

import json
import logging
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from kombu.transport import virtual

from operations.broker.names import DEAD_LETTER
from operations.broker.redis_transport.names import RETURNS, UNACKED, UNACKED_INDEX, WAKE
from operations.broker.redis_transport.scripts import BURY, RESTORE, Script

log = logging.getLogger(__name__)

#: Seconds for which a return of a message to its queue is remembered.
RETURNS_REMEMBERED = 3600


class Receipts(virtual.QoS):
    """Acknowledging, rejecting and putting back, each one step on the server."""

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)  # type: ignore[no-untyped-call]
        #: Why a message is about to be rejected.
        self.reasons: dict[str, str] = {}
        #: To be acknowledged by the next look, and by the one that is under way.
        self._answers: list[str] = []
        self._answers_under_way: list[str] = []

    def room(self) -> int:
        """How many more messages may be taken."""
        limit = self.prefetch_count or 1
        return max(0, limit - (len(self._delivered) - len(self._dirty)))

    def taken(self, receipts: Iterable[str]) -> None:
        """The server has written these down as ours; their messages are not read yet."""
        if self._dirty:
            self._flush()  # type: ignore[no-untyped-call]
        for receipt in receipts:
            self._quick_append(receipt, None)

    def append(self, message: Any, delivery_tag: str) -> None:
        """Called for each message that was read; :meth:`taken` knows it already."""
        self._quick_append(delivery_tag, message)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message: together with the next look, if that follows at once.

        A worker with a backlog looks after each message, and so needs one round trip for it
        instead of two. An answer that is lost with the connection costs a duplicate.
        """
        self._answers.append(delivery_tag)
        self._quick_ack(delivery_tag)
        if not self.channel.looks_next:
            self.answer_now()

    def answers(self) -> list[str]:
        """The receipts that a look is to acknowledge, which begins now."""
        self._answers_under_way, self._answers = self._answers, []
        return self._answers_under_way

    def answer_again(self) -> None:
        """The look that was under way has come to nothing."""
        self._answers = self._answers_under_way + self._answers
        self._answers_under_way = []

    def answer_now(self) -> None:
        """Acknowledge what no look has acknowledged yet."""
        receipts, self._answers = self._answers, []
        if receipts:
            with (
                self.channel.conn_or_acquire() as client,
                client.pipeline(transaction=False) as pipe,
            ):
                pipe.zrem(UNACKED_INDEX, *receipts).hdel(UNACKED, *receipts).execute()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Put back to the end of its queue, or move to the dead letters: never just drop."""
        if requeue:
            self._restore("tail", "receipts", delivery_tag)
        else:
            self._run(
                BURY,
                3,
                UNACKED,
                UNACKED_INDEX,
                DEAD_LETTER,
                delivery_tag,
                self._about(delivery_tag),
            )
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Put everything back, first in line, in one step."""
        self._flush()  # type: ignore[no-untyped-call]
        receipts = list(self._delivered)
        self._delivered.clear()
        if receipts:
            try:
                self._restore("head", "receipts", *receipts)
            except self.channel.connection_errors as error:
                # The sweep of any worker puts them back once their time is over.
                log.warning("%d messages could not be put back: %s", len(receipts), error)
        return []

    def restore_visible(self, start: int = 0, num: int = 10, interval: int = 10) -> None:  # noqa: ARG002
        """Put back what nobody has answered for within the visibility timeout."""
        count = self._restore("head", "older", str(self.channel.visibility_timeout))
        if count:
            log.warning("%d messages were taken long ago and are put back.", count)

    def _restore(self, where: str, *which: str) -> int:
        limit = str(settings.SEKALI_DELIVERY_LIMIT)
        keys = (UNACKED, UNACKED_INDEX, DEAD_LETTER)
        options = (where, WAKE, RETURNS, limit, str(RETURNS_REMEMBERED))
        return int(self._run(RESTORE, 3, *keys, *options, *which))

    def _run(self, script: Script, keys: int, *arguments: str) -> Any:
        with self.channel.conn_or_acquire() as client:
            return client.eval(script.text, keys, *arguments)

    def _about(self, delivery_tag: str) -> str:
        return json.dumps({"why": self.reasons.pop(delivery_tag, "rejected")[:500]})
