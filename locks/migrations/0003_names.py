from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("locks", "0002_invalidation")]

    operations = [
        migrations.AlterModelOptions(
            name="invalidationrecord",
            options={"verbose_name": "pending invalidation"},
        ),
    ]
