"""Something outside that is called, and may be sick."""

import logging
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from billiard.exceptions import SoftTimeLimitExceeded

from operations.dependencies import bulkhead
from operations.dependencies.attempt import current, put_off
from operations.dependencies.bulkhead import Bulkhead
from operations.dependencies.deadline import within
from operations.dependencies.local import LocalGate
from operations.dependencies.policy import Answer, Breaker, Budget, Look
from operations.dependencies.shared import SharedGate, Unshared
from operations.errors import DependencyError, NotReady, Refused

log = logging.getLogger(__name__)

#: Seconds for which a look at the shared state is good enough.
LOOK_TTL = 0.5
#: A bulkhead without a place is asked again after this long, in seconds, however long an
#: operation has waited: a place is soon free, and who stays away longer is overtaken.
NO_PLACE_DELAY = 1.0

_WHY = {
    "open": "{0} is failing; its breaker is open.",
    "ramp": "{0} is recovering, and is called slowly.",
    "budget": "Too many retries call {0} already.",
}

_registered: dict[str, "Dependency"] = {}


@dataclass(frozen=True)
class WorkerShare:
    """Calls under way in one worker, and how many it may make at once (0: any number)."""

    worker: str
    calls: int
    places: int


@dataclass(frozen=True)
class State:
    """What operators may want to know of a dependency.

    :param state: ``closed``, ``open``, ``half-open`` or ``recovering``
    :param opens_in: seconds until an open breaker lets one call try
    :param recovery_rate: attempts a second that a recovering one lets through
    :param calls_per_second: ended calls, on average over the breaker's window
    :param failure_ratio: of the calls in that window; None: there were none since it opened
    :param budget_left: retries that may still be made in the budget's window
    :param share_in_use: of its places in the worker that makes most of it, 1: all
    """

    name: str
    state: str
    opens_in: float
    recovery_rate: float | None
    calls_per_second: float
    failure_ratio: float | None
    budget_left: float
    calls_under_way: int
    share_in_use: float
    workers: list[WorkerShare]


class Dependency:
    """Call it like this, and let it decide whether there is a call::

        with payments.call():
            answer = ...

    A call that raises :class:`DependencyError`, or that a soft time limit ends, failed; one
    that returns, or raises :class:`Refused`, :class:`NotReady` or one of ``answers``, was
    answered. Of other exceptions nothing is concluded.

    :param name: as in ``dependencies`` of a kind; one object a name
    :param connect_timeout: seconds; for the client that makes the calls
    :param total_timeout: seconds a call takes at most;
        :class:`~operations.dependencies.http.BoundedClient` keeps to it in all that it does
    :param answers: exceptions by which the client tells an answer
    :param share: of a worker's pool that may wait for it at once, above 0 and at most 1;
        rounded up
    """

    def __init__(
        self,
        name: str,
        *,
        connect_timeout: float,
        total_timeout: float,
        answers: Sequence[type[Exception]] = (),
        breaker: Breaker | None = None,
        budget: Budget | None = None,
        share: float = 0.75,
    ) -> None:
        if name in _registered:
            raise ValueError(f"There is a dependency {name!r} already.")
        if not 0 < share <= 1 or not 0 < connect_timeout <= total_timeout:
            raise ValueError(f"Dependency {name!r}: a share or a time-out cannot work.")
        self.name = name
        self.connect_timeout = connect_timeout
        self.total_timeout = total_timeout
        self._answers: tuple[type[Exception], ...] = (Refused, NotReady, *answers)
        # Longer than any call, so that there are never two.
        probe = 1.5 * total_timeout + 2
        policies = breaker or Breaker(), budget or Budget()
        self._window = policies[0].window
        self._shared = SharedGate(name, *policies, probe)
        self._local = LocalGate(*policies, probe)
        self._bulkhead = Bulkhead(len(_registered), share)
        self._lock = threading.Lock()
        self._looked: tuple[float, Look] = (float("-inf"), Look("closed"))
        _registered[name] = self

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around one call.

        :raises NotReady: there must be no call now
        """
        attempt = current()
        with self._bulkhead.place() as place:
            if not place:
                raise self._no_place()
            who = secrets.token_hex(8)
            answer = self._admit(who, first=self.name not in attempt.counted, retry=attempt.retry)
            if not answer.allowed:
                raise self._not_now(answer, attempt.waited)
            attempt.counted.add(self.name)
            result, wished = "none", 0.0
            try:
                with within(self.total_timeout):
                    yield
                result = "ok"
            except self._answers:
                result = "ok"
                raise
            except DependencyError as error:
                result, wished = "bad", error.retry_after
                raise
            except SoftTimeLimitExceeded as error:
                result = "bad"
                error.dependency = self.name
                raise
            finally:
                self._report(who, result, wished)

    def look(self) -> Look:
        """The state of its breaker, at most :data:`LOOK_TTL` old."""
        now = time.monotonic()
        with self._lock:
            at, seen = self._looked
            if now - at < LOOK_TTL:
                return seen
        try:
            seen = self._shared.look()
        except Unshared:
            seen = self._local.look()
        with self._lock:
            self._looked = now, seen
        return seen

    def state(self) -> State:
        """Its numbers, of all processes together.

        :raises Unshared: the server of the shared state does not answer
        """
        seen = self._shared.describe()
        volume = seen.succeeded + seen.failed
        workers = Counter(seen.calls)
        return State(
            name=self.name,
            state=seen.word,
            opens_in=round(seen.wait, 3),
            recovery_rate=seen.rate if seen.state == "ramp" else None,
            calls_per_second=round(volume / self._window, 3),
            failure_ratio=round(seen.failed / volume, 4) if volume else None,
            budget_left=round(max(0.0, seen.retries_allowed - seen.retries), 1),
            calls_under_way=len(seen.calls),
            share_in_use=max(
                (count / places for (_, places), count in workers.items() if places), default=0.0
            ),
            workers=[
                WorkerShare(worker, count, places)
                for (worker, places), count in sorted(workers.items())
            ],
        )

    def refusal(self, waited: float) -> NotReady | None:
        """What an attempt would be told by a call now, as far as a look can tell.

        Asked before anything has begun; it may wait for a place as a call does.
        """
        seen = self.look()
        if seen.state == "open":
            return self._not_now(Answer("open", seen.wait, seen.shared), waited)
        with self._bulkhead.place() as place:
            return None if place else self._no_place()

    def _no_place(self) -> NotReady:
        return NotReady(
            # Wide, so that those who are put off together keep coming back and not at once.
            random.uniform(0.5, 1.5) * NO_PLACE_DELAY,  # noqa: S311
            f"{self.name} holds its share of the pool already.",
            dependency=self.name,
        )

    def _not_now(self, answer: Answer, waited: float) -> NotReady:
        # The dispatcher does not know which of them will be retries.
        held_back = answer.shared and answer.verdict != "budget"
        delay = put_off(answer.wait, waited, held_back=held_back)
        return NotReady(delay, _WHY[answer.verdict].format(self.name), dependency=self.name)

    def _admit(self, who: str, *, first: bool, retry: bool) -> Answer:
        places, worker = self._bulkhead.places, bulkhead.worker()
        try:
            return self._shared.admit(who, first=first, retry=retry, places=places, worker=worker)
        except Unshared:
            return self._local.admit(who, first=first, retry=retry)

    def _report(self, who: str, result: str, wished: float) -> None:
        # This process may be the next to be alone; then it should know.
        news = self._local.report(who, result, wished=wished)
        with suppress(Unshared):
            news = self._shared.report(who, result, wished=wished)
        if news:
            log.warning("The breaker of %s has %s.", self.name, news)


def registered(names: Sequence[str]) -> list[Dependency]:
    """Those of these names that there are; others are called without a breaker."""
    return [_registered[name] for name in names if name in _registered]


def states() -> list[State]:
    """The state of each dependency that this process knows, by name.

    Takes at most about ``LOCKS_TIMEOUT`` when the server is away.

    :raises Unshared: the server of the shared state does not answer
    """
    return [_registered[name].state() for name in sorted(_registered)]
