"""The numbers of requirement D5, for an exporter."""

from collections import Counter

from locks import counts
from locks.backend import Backend
from locks.selection import backend_for


def totals(backend: Backend | str | None = None) -> dict[str, int]:
    """Every counter of ``locks/counts.py``: those of all processes and what this one has
    not sent yet. They start again at zero when the lease server was emptied.

    Raises :class:`locks.LeaseUnavailable`.
    """
    summed = Counter(backend_for(backend).counts())
    summed.update(counts.pending())
    return dict(summed)
