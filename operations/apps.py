from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class OperationsApp(AppConfig):
    name = "operations"

    def ready(self) -> None:
        from operations import checks  # noqa: F401  (registers itself)

        autodiscover_modules("operations")
