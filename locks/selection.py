"""Which store a lease lives in: ``settings.LOCKS_BACKEND``, or as the caller says."""

from django.conf import settings

from locks.backend import Backend
from locks.postgres import PostgresBackend
from locks.valkey.backend import ValkeyBackend

_BACKENDS: dict[str, Backend] = {"valkey": ValkeyBackend(), "postgres": PostgresBackend()}


def backend_for(choice: "Backend | str | None") -> Backend:
    """The backend named ``choice``, or the one of the settings; a backend is itself.

    Raises :class:`ValueError` for a name that is not known.
    """
    if choice is None:
        choice = getattr(settings, "LOCKS_BACKEND", "valkey")
    if not isinstance(choice, str):
        return choice
    try:
        return _BACKENDS[choice]
    except KeyError:
        raise ValueError(f"There is no lease backend named {choice!r}.") from None
