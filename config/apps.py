from django.apps import AppConfig
from django.conf import settings

from locks import process


class ConfigApp(AppConfig):
    name = "config"

    def ready(self) -> None:
        # As operators read it in the list of leases; a worker gives its node name instead.
        process.call_it(settings.SEKALI_ROLE)
        if settings.SENTRY_DSN:
            # Only here: it is a tenth of what a process takes to start.
            import sentry_sdk

            # Its Django, Celery and Redis parts switch themselves on. No request bodies,
            # headers or users: they hold tokens and personal data.
            sentry_sdk.init(
                dsn=settings.SENTRY_DSN,
                send_default_pii=False,
                max_request_body_size="never",
                server_name=settings.SEKALI_ROLE,
            )
