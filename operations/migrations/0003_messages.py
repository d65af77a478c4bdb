"""Messages no worker can handle, and attempts ended by remote control."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0002_sequences"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="attempt",
            name="operations_outcome_is_known",
        ),
        migrations.AddField(
            model_name="deadletter",
            name="message_id",
            field=models.CharField(
                blank=True,
                db_default="",
                help_text="Which message this is; recording it again changes nothing.",
                max_length=100,
            ),
        ),
        migrations.AlterField(
            model_name="attempt",
            name="outcome",
            field=models.CharField(
                choices=[
                    ("done", "Done"),
                    ("refused", "Refused"),
                    ("retry", "Retry"),
                    ("dead", "Dead"),
                    ("lost", "Lost"),
                    ("revoked", "Revoked"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="deadletter",
            name="queue",
            field=models.CharField(blank=True, default="", max_length=255),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("outcome__in", ["done", "refused", "retry", "dead", "lost", "revoked"])
                ),
                name="operations_outcome_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.UniqueConstraint(
                condition=models.Q(("message_id", ""), _negated=True),
                fields=("message_id",),
                name="operations_one_letter_a_message",
            ),
        ),
    ]
