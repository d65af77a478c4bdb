"""A row that counts, with a column for the fence: what the leases of these tests protect."""

from typing import ClassVar

from django.db import connection, models


class Tally(models.Model):
    objects: ClassVar[models.Manager["Tally"]] = models.Manager()

    value = models.BigIntegerField(default=0)
    fence = models.BigIntegerField(default=0)

    class Meta:
        app_label = "tests_locks"
        managed = False
        db_table = "tests_locks_tally"

    def __str__(self) -> str:
        return f"{self.value} (fence {self.fence})"


def new_tally() -> Tally:
    """Make the table anew, with one row."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS tests_locks_tally")
        cursor.execute(
            "CREATE TABLE tests_locks_tally ("
            " id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " value bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0)"
        )
    return Tally.objects.create()
