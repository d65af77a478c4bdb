"""Controls of kinds, and a log of decisions that only grows."""

from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Now

# The owner of the table may still empty it as a whole, which leaves no gap in a story.
ONLY_GROWS = """
CREATE FUNCTION operations_audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'The audit log only grows.' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER operations_audit_only_grows BEFORE UPDATE OR DELETE ON operations_auditentry
    FOR EACH ROW EXECUTE FUNCTION operations_audit_only_grows();
"""
MAY_SHRINK = """
DROP TRIGGER operations_audit_only_grows ON operations_auditentry;
DROP FUNCTION operations_audit_only_grows();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0003_messages"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="KindControl",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=100, unique=True)),
                (
                    "accepting",
                    models.BooleanField(
                        default=True,
                        help_text="New operations are taken in; replays are answered anyway.",
                    ),
                ),
                ("paused", models.BooleanField(default=False, help_text="Nothing is begun.")),
                (
                    "rate",
                    models.FloatField(
                        blank=True, help_text="Operations begun in a second, at most.", null=True
                    ),
                ),
                (
                    "max_running",
                    models.PositiveIntegerField(
                        blank=True, help_text="Operations that run at once, at most.", null=True
                    ),
                ),
                (
                    "tokens",
                    models.FloatField(db_default=0, help_text="Of the rate: what may be sent now."),
                ),
                (
                    "refilled_at",
                    models.DateTimeField(db_default=Now()),
                ),
                (
                    "shed_until",
                    models.DateTimeField(
                        help_text="Too much is waiting: nothing is taken in until then.", null=True
                    ),
                ),
                (
                    "wait",
                    models.PositiveIntegerField(
                        db_default=0, help_text="Seconds that a refused client is told to wait."
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("rate__isnull", True), ("rate__gt", 0), _connector="OR"
                        ),
                        name="operations_rate_is_positive",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("max_running__isnull", True), ("max_running__gte", 1), _connector="OR"
                        ),
                        name="operations_max_running_is_positive",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(db_default=Now())),
                (
                    "author_name",
                    models.CharField(
                        help_text="The user's name, or who was at the command line.", max_length=200
                    ),
                ),
                ("action", models.CharField(max_length=50)),
                (
                    "subject",
                    models.CharField(help_text="What it is about, e.g. a kind.", max_length=200),
                ),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("reason", models.TextField()),
                (
                    "author",
                    models.ForeignKey(
                        null=True,
                        on_delete=models.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "audit entries",
                "indexes": [models.Index(fields=["subject", "-at"], name="operations_audit")],
            },
        ),
        migrations.RunSQL(ONLY_GROWS, MAY_SHRINK),
    ]
