from django.apps import AppConfig


class InventoryApp(AppConfig):
    name = "inventory"
