"""How messages are taken from Redis and Valkey: Celery's transport, made safe.

The stock transport pops a message and only then writes down that a worker has it, so a
worker killed in between loses it; bytes that are no message end the worker; a connection
that breaks under a busy worker ends it too. Here

- taking is one script: popped and written down as unacknowledged, or not at all;
- each delivery has a receipt of its own, so a late acknowledgement cannot take away the
  message of the next one who has it;
- what is rejected, or cannot be read, is moved to the queue ``dead_letter`` in one step;
- what comes back too often is moved there as well, in case it is what ends the workers;
- nothing that a message holds, and no loss of a connection, ends the event loop.

An idle worker waits for a token in ``sekali:wake:QUEUE``, which publishing puts there. A
message from a publisher that does not is found at the next look, a second later.
"""

from operations.broker.redis_transport.transport import SentinelTransport, Transport

__all__ = ["SentinelTransport", "Transport"]
