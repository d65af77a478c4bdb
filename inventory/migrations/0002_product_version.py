"""The version of a product is counted by the database, whoever changes the entry."""

from django.db import migrations

COUNT = """
CREATE FUNCTION inventory_count_catalogue_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.version := OLD.version + 1;
    RETURN NEW;
END
$$;

CREATE TRIGGER inventory_product_version
BEFORE UPDATE OF name, price_minor, currency ON inventory_product
FOR EACH ROW
WHEN ((OLD.name, OLD.price_minor, OLD.currency)
      IS DISTINCT FROM (NEW.name, NEW.price_minor, NEW.currency))
EXECUTE FUNCTION inventory_count_catalogue_change();
"""

DO_NOT_COUNT = """
DROP TRIGGER inventory_product_version ON inventory_product;
DROP FUNCTION inventory_count_catalogue_change();
"""


class Migration(migrations.Migration):
    dependencies = [("inventory", "0001_initial")]

    operations = [migrations.RunSQL(COUNT, DO_NOT_COUNT)]
