"""The effects of scripted operations, countable: nothing here prevents a second one."""

from typing import ClassVar

from django.db import models


class Effect(models.Model):
    operation_id = models.UUIDField()
    epoch = models.BigIntegerField()
    label = models.CharField(max_length=100, default="")
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["operation_id"])]

    def __str__(self) -> str:
        return f"{self.label} {self.operation_id}"


class Counter(models.Model):
    """For read-modify-write without protection: lost updates show."""

    name = models.CharField(max_length=100, unique=True)
    value = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}={self.value}"
