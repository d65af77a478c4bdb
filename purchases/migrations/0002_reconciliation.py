"""How far gateway and store have been compared."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("purchases", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ReconciliationMark",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "position",
                    models.DateTimeField(help_text="Everything before it has been compared."),
                ),
            ],
        ),
    ]
