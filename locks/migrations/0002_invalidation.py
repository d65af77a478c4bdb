from django.db import migrations, models

# Rows come and go with every write; what is dead must not pile up in front of the due ones.
VACUUM = """
ALTER TABLE locks_invalidation SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 1
);
"""
DEFAULT_VACUUM = """
ALTER TABLE locks_invalidation RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay
);
"""


class Migration(migrations.Migration):
    dependencies = [("locks", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="InvalidationRecord",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.TextField()),
                ("recorded_at", models.DateTimeField()),
                ("due_at", models.DateTimeField()),
            ],
            options={"db_table": "locks_invalidation"},
        ),
        migrations.AddIndex(
            model_name="invalidationrecord",
            index=models.Index(fields=["due_at"], name="locks_invalidation_due"),
        ),
        migrations.RunSQL(VACUUM, DEFAULT_VACUUM),
    ]
