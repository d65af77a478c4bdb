"""``make clean``: end the run of this tree and remove what embedded servers keep elsewhere."""

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
    shutil.rmtree(place_outside(home), ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
