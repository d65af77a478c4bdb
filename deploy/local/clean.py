"""``make clean``: end the run of this tree and remove what embedded servers keep elsewhere."""

import contextlib
import shutil
import sys

from deploy.local.embedded import place_outside
from deploy.local.home import Home
from deploy.local.launcher import TREE
from deploy.local.occupancy import Occupancy
from deploy.local.up import end


def main() -> int:
    try:
        home = Home(TREE / ".local")
        end(home, Occupancy(home))
    except (OSError, TimeoutError) as error:
        print(f"cannot clean: {error}", file=sys.stderr)
        return 1
    outside = place_outside(home)
    shutil.rmtree(outside, ignore_errors=True)
    # Other trees may have theirs there.
    with contextlib.suppress(OSError):
        outside.parent.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
