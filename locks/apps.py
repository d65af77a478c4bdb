from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules


class LocksApp(AppConfig):
    name = "locks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from locks.cache.checks import check_cache
        from locks.checks import check_lease_server

        checks.register(check_lease_server, "locks")
        checks.register(check_cache, "locks")
        autodiscover_modules("caches")
