from django.apps import AppConfig


class PurchasesApp(AppConfig):
    name = "purchases"
