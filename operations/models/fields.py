"""A column that PostgreSQL numbers by itself."""

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    _BigInteger = models.BigIntegerField[int, int]
else:
    _BigInteger = models.BigIntegerField


class IdentityField(_BigInteger):
    """``bigint GENERATED ALWAYS AS IDENTITY``: the database gives the number, nobody else can.

    Django knows identity columns as primary keys only. Rows with such a column are
    inserted by SQL that leaves the column out.
    """

    def db_type(self, connection: object) -> str:  # noqa: ARG002
        return "bigint GENERATED ALWAYS AS IDENTITY"

    def rel_db_type(self, connection: object) -> str:  # noqa: ARG002
        return "bigint"

    def cast_db_type(self, connection: object) -> str:  # noqa: ARG002
        return "bigint"
