from django.apps import AppConfig


class LocksApp(AppConfig):
    name = "locks"
    default_auto_field = "django.db.models.BigAutoField"
