from django.apps import AppConfig
from django.conf import settings


class ConfigApp(AppConfig):
    name = "config"

    def ready(self) -> None:
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
