"""What the dispatcher last wrote into the broker, to see whether the broker forgot it."""

from typing import ClassVar

from django.db import models


class BrokerMark(models.Model):
    """One row. The broker holds the same number, or a higher one that is being confirmed."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField()
    server = models.CharField(max_length=64, help_text="Run id of the broker's server.")
    confirmed_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(id=1), name="operations_one_broker_mark")
        ]

    def __str__(self) -> str:
        return f"{self.number} on {self.server}"
