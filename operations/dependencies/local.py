"""The gate of one process alone, for while the shared one does not answer.

The rules are the same with two simplifications: the window ends at once instead of in
slices, and the recovery has no ramp, since a single process makes no wave.
"""

import threading
import time
from collections import deque

from operations.dependencies.policy import Answer, Breaker, Budget, Look


class LocalGate:
    """One dependency's gate in this process. Safe for threads."""

    def __init__(self, breaker: Breaker, budget: Budget, probe: float) -> None:
        self._breaker = breaker
        self._budget = budget
        self._probe_time = probe
        self._lock = threading.Lock()
        self._calls: deque[tuple[float, bool]] = deque()
        self._attempts: deque[tuple[float, bool]] = deque()
        self._streak = 0
        self._last_ok = float("-inf")
        self._open_until: float | None = None
        self._cooldown = breaker.cooldown
        self._probe = ""
        self._probe_until = 0.0

    def admit(self, who: str, *, first: bool, retry: bool) -> Answer:
        """May ``who``, a name used once, call?"""
        now = time.monotonic()
        with self._lock:
            if self._open_until is not None:
                wait = self._wait(now)
                if wait > 0:
                    return Answer("open", wait, shared=False)
                self._probe, self._probe_until = who, now + self._probe_time
                return Answer("probe")
            if first:
                if retry and not self._affordable(now):
                    return Answer("budget", self._budget.window / 10, shared=False)
                self._attempts.append((now, retry))
            return Answer("go")

    def report(self, who: str, result: str, *, wished: float = 0) -> str:
        """What became of the call: ``ok``, ``bad`` or ``none``."""
        now = time.monotonic()
        with self._lock:
            if self._open_until is not None:
                return self._probed(who, result, now, wished)
            if result == "none":
                return ""
            self._calls.append((now, result == "ok"))
            while self._calls[0][0] < now - self._breaker.window:
                self._calls.popleft()
            if result == "ok":
                self._streak, self._last_ok = 0, now
                return ""
            self._streak += 1
            if not self._sick(now):
                return ""
            self._open(now, self._breaker.cooldown, wished)
            return "opened"

    def look(self) -> Look:
        """The state, unchanged."""
        now = time.monotonic()
        with self._lock:
            if self._open_until is None:
                return Look("closed", shared=False)
            wait = self._wait(now)
            return Look("open" if wait > 0 else "half", wait=wait, shared=False)

    def _wait(self, now: float) -> float:
        assert self._open_until is not None
        if now < self._open_until:
            return self._open_until - now
        return min(max(0.0, self._probe_until - now), 1.0) if self._probe else 0.0

    def _probed(self, who: str, result: str, now: float, wished: float) -> str:
        if who != self._probe:
            return ""
        self._probe = ""
        if result == "bad":
            self._open(now, 2 * self._cooldown, wished)
        elif result == "ok":
            self._open_until, self._streak, self._last_ok = None, 0, now
            return "closed"
        return ""

    def _open(self, now: float, cooldown: float, wished: float) -> None:
        longest = self._breaker.longest_cooldown
        self._cooldown = min(cooldown, longest)
        self._open_until = now + min(max(self._cooldown, wished), longest)
        self._calls.clear()

    def _sick(self, now: float) -> bool:
        breaker = self._breaker
        bad = sum(not ok for _, ok in self._calls)
        return (
            len(self._calls) >= breaker.minimum and bad >= breaker.ratio * len(self._calls)
        ) or (self._streak >= breaker.minimum and now - self._last_ok > breaker.window)

    def _affordable(self, now: float) -> bool:
        budget = self._budget
        while self._attempts and self._attempts[0][0] < now - budget.window:
            self._attempts.popleft()
        retries = sum(retry for _, retry in self._attempts)
        firsts = len(self._attempts) - retries
        return retries + 1 <= budget.floor * budget.window + budget.share * firsts
