from django.apps import AppConfig


class ScriptedApp(AppConfig):
    name = "tests.lab.scripted"
    label = "scripted"
    default_auto_field = "django.db.models.BigAutoField"
