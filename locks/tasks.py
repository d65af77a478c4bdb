"""Housekeeping of this app, by Celery's beat."""

from dataclasses import asdict
from typing import Any

from celery import shared_task
from django.db import DatabaseError

from locks.cache.audit import audit


@shared_task(  # type: ignore[untyped-decorator]
    name="locks.audit_caches",
    autoretry_for=(DatabaseError,),
    retry_backoff=True,
    retry_jitter=True,
    max_retries=3,
)
def audit_caches() -> dict[str, Any]:
    """Compare a sample of what is cached with what is true."""
    return asdict(audit())
