"""Waits until it has been written down, drops root's rights when told to, becomes the program.

Run as ``python gate.py FD UID GID PROGRAM…``: one byte on the descriptor opens the gate; its
end without one (the starter died in between) closes it for good. UID -1 keeps the user.
"""

import os
import sys


def main() -> int:
    descriptor, uid, gid = (int(number) for number in sys.argv[1:4])
    program = sys.argv[4:]
    if not os.read(descriptor, 1):
        return 1
    os.close(descriptor)
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    try:
        os.execvp(program[0], program)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"cannot start {program[0]}: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main())
