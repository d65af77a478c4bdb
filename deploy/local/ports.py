"""Free TCP ports of the loopback interface."""

import socket

HOST = "127.0.0.1"


class Ports:
    """Hands out ports that nobody listens on, never the same one twice."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self, preferred: int) -> int:
        """The preferred port or, stepping over those that are taken, the next free one.

        Raises ``RuntimeError`` when a hundred ports in a row are taken.
        """
        for port in range(preferred, preferred + 100):
            if port not in self._taken and is_free(port):
                self._taken.add(port)
                return port
        raise RuntimeError(f"no free port between {preferred} and {preferred + 99}")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    # A listener on all interfaces hides behind a bind to one of them on some systems,
    # and the other way round on others.
    return _binds(HOST, port) and _binds("", port)


def _binds(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # Connections of an earlier server that linger in TIME_WAIT take nothing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
        return True
