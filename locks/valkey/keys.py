"""Every key that this app has on the lease server.

========================  ======  =====================================================
``locks:lease:<key>``     hash    a held lease: owner, fence, since (server's clock, ms) and
                                  who (JSON of host, pid, process); lives for its TTL
``locks:waiting:<key>``   zset    who waits: owner, scored by when it gives up
                                  (server's clock, ms); lives until the last gives up
``locks:wake:<key>``      list    at most one element: a release that a waiter has not
                                  noticed yet; lives for some seconds
``locks:fence``           hash    the next fence and the last of the present block, the
                                  server the block was given to, or the mark of a block
                                  asked for; no TTL
``locks:counts``          hash    counters of all processes; no TTL
========================  ======  =====================================================
"""

PREFIX = "locks:"
FENCE = PREFIX + "fence"
COUNTS = PREFIX + "counts"
LEASES = PREFIX + "lease:"


def lease(key: str) -> str:
    return LEASES + key


def waiting(key: str) -> str:
    return f"{PREFIX}waiting:{key}"


def wake(key: str) -> str:
    return f"{PREFIX}wake:{key}"
