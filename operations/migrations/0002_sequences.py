"""What Django's models cannot say: two sequences, and how eagerly to vacuum."""

from typing import ClassVar

from django.db import migrations

SEQUENCES = """
CREATE SEQUENCE operations_epoch;
CREATE SEQUENCE operations_broker_mark;
"""
NO_SEQUENCES = """
DROP SEQUENCE operations_epoch;
DROP SEQUENCE operations_broker_mark;
"""

# Every operation is updated a few times in its life, and its dead versions stand in the
# way of the claims; the default of a fifth of the table is too late for that.
VACUUM = """
ALTER TABLE operations_operation SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1, fillfactor = 85
);
"""
DEFAULT_VACUUM = """
ALTER TABLE operations_operation RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_analyze_scale_factor, autovacuum_vacuum_cost_delay, fillfactor
);
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("operations", "0001_initial")]

    operations: ClassVar = [
        migrations.RunSQL(SEQUENCES, NO_SEQUENCES),
        migrations.RunSQL(VACUUM, DEFAULT_VACUUM),
    ]
