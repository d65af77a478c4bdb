"""The housekeeping of purchases, as Celery tasks."""

import logging

from celery import shared_task
from django.db import DatabaseError

from locks import LeaseHeld, LeaseLost, LeaseUnavailable, leased
from purchases.reconciliation import reconcile

log = logging.getLogger(__name__)

#: Seconds of one run; it goes on where it ended.
SECONDS = 40.0


@leased("purchases:reconciliation", ttl=30)
def _alone() -> dict[str, int]:
    return reconcile(seconds=SECONDS)


@shared_task(  # type: ignore[untyped-decorator]
    name="purchases.reconcile",
    autoretry_for=(DatabaseError,),
    retry_backoff=True,
    retry_jitter=True,
    max_retries=3,
)
def reconcile_task() -> dict[str, int]:
    """Compare gateway and store for a while, unless somebody does already."""
    try:
        return _alone()
    except (LeaseHeld, LeaseUnavailable) as error:
        log.info("No reconciliation this time: %s", error)
    except LeaseLost as error:
        # What it did is stored, and safe to be done twice; the next run goes on from there.
        log.warning("Reconciliation ends early: %s", error)
    return {}
