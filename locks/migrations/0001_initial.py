from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        # Each number stands for a block of fences (locks/fences.py).
        migrations.RunSQL(
            sql="CREATE SEQUENCE locks_fence AS bigint START 1000 INCREMENT 1000 CACHE 1",
            reverse_sql="DROP SEQUENCE locks_fence",
        ),
        migrations.CreateModel(
            name="LeaseRow",
            fields=[
                ("key", models.TextField(primary_key=True, serialize=False)),
                ("owner", models.TextField(blank=True, default="")),
                ("fence", models.BigIntegerField(default=0)),
                ("host", models.TextField(blank=True, default="")),
                ("pid", models.IntegerField(default=0)),
                ("process", models.TextField(blank=True, default="")),
                ("acquired_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
            ],
            options={"db_table": "locks_lease", "verbose_name": "lease"},
        ),
    ]
