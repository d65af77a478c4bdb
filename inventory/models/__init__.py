from inventory.models.inventory import Inventory
from inventory.models.owned_item import OwnedItem, Source
from inventory.models.product import Product

__all__ = ["Inventory", "OwnedItem", "Product", "Source"]
