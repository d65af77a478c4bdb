"""When a dependency counts as sick, and how much it is asked meanwhile."""

from dataclasses import dataclass, field

from django.conf import settings


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """Opens when calls fail, lets a single one try, and recovers slowly.

    It opens when, of at least ``minimum`` calls in a ``window``, a share of ``ratio``
    failed; also after ``minimum`` failures in a row and no success for a ``window``. It
    stays open for ``cooldown``, twice as long each time a probe fails, at most for
    ``longest_cooldown``. Durations are seconds.

    After a probe has succeeded, ``ramp_start`` attempts a second are let through, twice as
    many each ``ramp_doubling``, and after ``ramp`` all.
    """

    window: float = field(default_factory=lambda: float(settings.SEKALI_BREAKER_WINDOW))
    minimum: int = field(default_factory=lambda: int(settings.SEKALI_BREAKER_MINIMUM))
    ratio: float = 0.5
    cooldown: float = field(default_factory=lambda: float(settings.SEKALI_BREAKER_COOLDOWN))
    longest_cooldown: float = 60
    ramp_start: float = 2
    ramp_doubling: float = 3
    ramp: float = 30


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How many retries there may be: a share of the first tries, and a floor.

    An attempt counts once, however many calls it makes.

    :param share: retries for each first try in the last ``window``
    :param floor: retries a second that are always allowed
    :param window: seconds
    """

    share: float = 0.2
    floor: float = field(default_factory=lambda: float(settings.SEKALI_RETRY_BUDGET_FLOOR))
    window: float = 60


@dataclass(frozen=True)
class Answer:
    """May a call be made? ``verdict`` is ``go``, ``probe``, ``open``, ``ramp`` or ``budget``.

    The last three say no; ask again after ``wait`` seconds.

    :param shared: all processes judge by the same state, the dispatcher too
    """

    verdict: str
    wait: float = 0
    shared: bool = True

    @property
    def allowed(self) -> bool:
        return self.verdict in ("go", "probe")


@dataclass(frozen=True)
class Look:
    """The state of a breaker: ``closed``, ``open``, ``half`` (open) or ``ramp``.

    :param wait: seconds until an open one lets somebody try
    :param rate: attempts a second that a recovering one lets through
    :param shared: all processes judge by the same state
    """

    state: str
    wait: float = 0
    rate: float = 0
    shared: bool = True

    @property
    def word(self) -> str:
        """The state, for people."""
        return {"half": "half-open", "ramp": "recovering"}.get(self.state, self.state)


@dataclass(frozen=True, kw_only=True)
class Description(Look):
    """A look with numbers.

    :param succeeded: calls in the breaker's window
    :param failed: likewise
    :param retries: in the budget's window
    :param retries_allowed: how many there may be in it
    :param calls: for each call under way its worker and how many may call at once there, 0 for
        any number
    """

    succeeded: int
    failed: int
    retries: int
    retries_allowed: float
    calls: list[tuple[str, int]]
