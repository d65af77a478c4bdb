"""Which products are known, from memory: for checks while a request waits."""

import threading
import time
from collections import OrderedDict

from inventory.models import Product

#: For how many seconds a product that was seen counts as known.
FRESH = 5.0
#: More products than this are not remembered at once.
CAPACITY = 10_000


class Catalogue:
    """Remembers what it has seen in the database; shared by the threads of a process.

    Only products that exist are remembered: what a client makes up costs a statement each
    time and no memory, and a new product is known at once.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def knows(self, sku: str) -> bool:
        """Whether there is such a product, or was a few seconds ago. A miss costs one
        statement."""
        now = time.monotonic()
        with self._lock:
            seen = self._seen.get(sku)
        if seen is not None and now - seen < FRESH:
            return True
        known = Product.objects.filter(sku=sku).exists()
        with self._lock:
            self._seen.pop(sku, None)
            if known:
                self._seen[sku] = now
                if len(self._seen) > CAPACITY:
                    self._seen.popitem(last=False)
        return known


catalogue = Catalogue()
