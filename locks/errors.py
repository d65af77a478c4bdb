"""What can go wrong with a lease: one class for each situation."""


class LeaseError(Exception):
    """Base of all errors of this app; raised itself only for wrong use."""


class LeaseUnavailable(LeaseError):
    """The lease server did not answer in time, or could not do what was asked.

    Whether the request had its effect is not known. ``acquire()``, ``renew()`` and
    ``release()`` may all be called again: none of them does harm twice.
    """

    def __init__(self, message: str, *, answered: bool = False) -> None:
        super().__init__(message)
        #: The server did answer, with an error: asking again at once is no use.
        self.answered = answered


class LeaseHeld(LeaseError):
    """Somebody else holds the lease, and still did when the wait was over."""


class LeaseLost(LeaseError):
    """The lease ended before its holder was done: it ran out or was taken away."""
