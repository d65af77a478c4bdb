"""How an attempt can end, and what an error is about.

Below the models, so that what words problems needs no loaded apps.
"""

from django.db import models


class Outcome(models.TextChoices):
    DONE = "done"
    REFUSED = "refused"
    RETRY = "retry"
    DEAD = "dead"
    LOST = "lost"
    #: Ended by remote control; not counted, and made again.
    REVOKED = "revoked"


class Category(models.TextChoices):
    """What an error is about; decides who has to look at it."""

    DATA = "data", "the payload is wrong"
    BUG = "bug", "our code is wrong"
    DEPENDENCY = "dependency", "something outside failed"
    TIMEOUT = "timeout", "the attempt took too long"
    WORKER_LOST = "worker_lost", "the worker died"
    LOCK = "lock", "the resource stayed busy"
    UNROUTABLE = "unroutable", "no worker can read the message"
    DRIFT = "drift", "store and outside world disagree"
