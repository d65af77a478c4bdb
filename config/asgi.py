"""The API as an ASGI application.

Started as ``uvicorn config.asgi:application --http config.server:Protocol --workers N``.

Django runs in a bounded pool of threads that live as long as the process and keep their
database connections. In front of it, in the event loop, everything is done that takes as
long as the client likes.
"""

import os
from typing import Any, cast

from a2wsgi import WSGIMiddleware
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

wsgi_application = get_wsgi_application()

# After the settings are loaded.
from django.conf import settings  # noqa: E402

from config.guard import Application, Guard  # noqa: E402
from config.health import Health  # noqa: E402

threads = WSGIMiddleware(cast("Any", wsgi_application), workers=settings.SEKALI_API_THREADS)
application = Health(
    Guard(
        cast("Application", threads),
        body_limit=settings.SEKALI_BODY_LIMIT,
        form_limit=settings.DATA_UPLOAD_MAX_MEMORY_SIZE or settings.SEKALI_BODY_LIMIT,
        body_timeout=settings.SEKALI_BODY_TIMEOUT,
    )
)
