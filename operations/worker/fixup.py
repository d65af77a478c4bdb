"""Celery's Django fixup, without closing the database after every task.

The stock fixup closes every connection before and after each task, whatever
``CONN_MAX_AGE`` says, which costs a new PostgreSQL session a task and three quarters of
the throughput. Here a connection is closed only if an error happened on it. It needs no
probe before a task: the first statement of an attempt is repeated on a new connection
when the old one is dead (``operations.executor``).

And where the stock fixup runs Django's checks in every process that imports tasks, and does not
look at what they find, here a worker runs those of the platform, and an error ends it, as it
ends a management command.
"""

import os
from typing import Any

from celery import Celery
from celery.fixups.django import DjangoFixup, DjangoWorkerFixup
from django.core.management.base import BaseCommand, SystemCheckError
from django.db import connections


class KeepingWorkerFixup(DjangoWorkerFixup):  # type: ignore[misc]
    """Keeps connections between tasks; starts nothing that the checks object to."""

    def validate_models(self) -> None:
        self.django_setup()

    def install(self) -> DjangoWorkerFixup:
        if not os.environ.get("CELERY_SKIP_CHECKS"):
            # Imported late: it wants the registry of kinds, which wants the apps.
            from operations.checks import TAGS

            try:
                BaseCommand().check(tags=TAGS)
            except SystemCheckError as error:
                # Celery logs what a receiver of its signals raises, and goes on; but not this.
                raise SystemExit(str(error)) from None
        return super().install()

    def close_database(self, **_: Any) -> None:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block or not connection.get_autocommit():
                # A handler left a transaction behind: nobody may inherit it.
                connection.close()
            elif connection.errors_occurred:
                connection.close_if_unusable_or_obsolete()


class KeepingFixup(DjangoFixup):  # type: ignore[misc]
    @property
    def worker_fixup(self) -> DjangoWorkerFixup:
        if self._worker_fixup is None:  # type: ignore[has-type]
            self._worker_fixup = KeepingWorkerFixup(self.app)
        return self._worker_fixup

    @worker_fixup.setter
    def worker_fixup(self, value: DjangoWorkerFixup) -> None:
        self._worker_fixup = value


def fixup(app: Celery) -> DjangoFixup:
    """Entry point for ``Celery(fixups=[…])``."""
    return KeepingFixup(app).install()
