"""Looks a name up where the name server never answers; run as a program of its own.

It takes itself out of the machine's network and file names (as root, or by a user namespace),
with a resolver configuration that names a socket which swallows every question.

``nameless.py system|supplier|gateway SECONDS``: who asks. Prints how long it took, or
``longer`` if it has not come back after so many seconds, whether the name server was asked,
and what was raised.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

NAME = "nobody-knows.example"
_NEW_USER, _NEW_NETWORK, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x00020000
_PRIVATE, _RECURSIVE, _BIND = 1 << 18, 1 << 14, 1 << 12
_SET_FLAGS, _UP = 0x8914, 1
#: Told to the test, which skips then.
CANNOT = 77


def apart() -> None:
    """
    :raises OSError: this system does not allow it
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            raise OSError(ctypes.get_errno(), name)

    with tempfile.NamedTemporaryFile("w", delete=False) as configuration:
        configuration.write("nameserver 127.0.0.1\noptions timeout:5 attempts:3\n")
    rest = _NEW_NETWORK | _NEW_MOUNTS
    call("unshare", rest if os.geteuid() == 0 else rest | _NEW_USER)
    call("mount", b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
    path = configuration.name
    call("mount", path.encode(), b"/etc/resolv.conf", None, ctypes.c_ulong(_BIND), None)
    Path(path).unlink()


def main() -> None:
    """As the module says."""
    try:
        apart()
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        silent.bind(("127.0.0.1", 53))
    except OSError as error:
        print(error)  # noqa: T201
        sys.exit(CANNOT)
    from django.conf import settings

    settings.configure(
        SUPPLIER_URL=f"http://{NAME}",
        SUPPLIER_TIMEOUT=1,
        STRIPE_API_KEY="sk_test_x",
        STRIPE_API_BASE=f"https://{NAME}",
        STRIPE_TIMEOUT=0.5,
    )
    call = {"system": _ask_system, "supplier": _ask_supplier, "gateway": _ask_gateway}[
        sys.argv[1]
    ]()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (told to the test)
            raised.append(error)

    started = time.monotonic()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(float(sys.argv[2]))
    took = "longer" if thread.is_alive() else f"{time.monotonic() - started:.2f}"
    asked = len(silent.recv(512, socket.MSG_DONTWAIT)) > 0
    print(took, asked, *(type(error).__name__ for error in raised))  # noqa: T201
    sys.stdout.flush()
    os._exit(0)


def _ask_system() -> Callable[[], object]:
    # The control: what clients without a bound do.
    return lambda: socket.getaddrinfo(NAME, 80)


def _ask_supplier() -> Callable[[], object]:
    from inventory import supplier

    return lambda: supplier.fetch("1")


def _ask_gateway() -> Callable[[], object]:
    from purchases import gateway

    return lambda: gateway.charge("k", "o", 100, "eur", "pm_card_visa")


if __name__ == "__main__":
    main()
