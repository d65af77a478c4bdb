"""What a handler may raise, and what each means for its operation.

A handler that returns has succeeded. Any exception that is not listed here (nor in the
kind's ``autoretry_for``) is taken for a bug.
"""


class Refused(Exception):
    """A business answer that is final: no stock, declined, not allowed. Ends ``failed``.

    :param code: stable and short, for programs, e.g. ``out_of_stock``
    :param detail: a sentence for people
    """

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail or code


class NotReady(Exception):
    """Not now; nothing went wrong. The operation waits, and no attempt is counted.

    :param delay: seconds to wait
    :param dependency: what it waits for, if that is something outside
    """

    def __init__(self, delay: float, why: str = "", *, dependency: str = "") -> None:
        super().__init__(delay, why)
        self.delay = delay
        self.why = why
        self.dependency = dependency


class DependencyError(Exception):
    """Something outside failed in a way that may pass. Retried with backoff.

    :param dependency: its name, e.g. ``payments``
    :param retry_after: seconds the dependency itself asked to wait, if it did
    """

    def __init__(self, dependency: str, detail: str = "", *, retry_after: float = 0) -> None:
        super().__init__(dependency, detail)
        self.dependency = dependency
        self.detail = detail
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.dependency}: {self.detail}" if self.detail else self.dependency


class BadPayload(Exception):
    """The stored payload can never be worked on. Dead at once."""


class ClaimLost(Exception):
    """Another worker, or nobody, holds this operation now. Stop; change nothing.

    Raised out of a fenced transaction, which is thereby rolled back. Handlers let it pass.
    """
