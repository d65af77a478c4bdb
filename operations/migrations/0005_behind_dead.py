"""The index of open rows also finds the dead ones of a resource, for those that wait behind."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("operations", "0004_controls")]

    operations = [
        migrations.RemoveIndex(model_name="operation", name="operations_open"),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                models.F("resource"),
                models.F("state"),
                models.F("seq"),
                condition=models.Q(
                    ("state__in", ("pending", "running")),
                    models.Q(("state", "dead"), models.Q(("resource", ""), _negated=True)),
                    _connector="OR",
                ),
                name="operations_open",
            ),
        ),
    ]
