from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class OperationsApp(AppConfig):
    name = "operations"

    def ready(self) -> None:
        from operations import checks, lease_guard  # noqa: F401  (they register themselves)

        autodiscover_modules("operations")
