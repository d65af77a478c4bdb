"""All addresses. ``/healthz`` and ``/readyz`` are answered before Django, see ``config.health``."""

from importlib.util import find_spec

from django.conf import settings
from django.contrib import admin
from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt

from operations.api import documentation, problem

_v1 = [
    "operations.api.urls",
    "inventory.urls",
    "purchases.urls",
    *(f"{app}.urls" for app in settings.EXTRA_APPS if find_spec(f"{app}.urls")),
]

urlpatterns = [
    *(path("api/v1/", include(urls)) for urls in _v1),
    path("", documentation.front_door),
    path("api/schema", documentation.Document.as_view(), name="schema"),
    path(documentation.PAGE.removeprefix("/"), documentation.Page.as_view(url_name="schema")),
    # Also with DEBUG, a client gets a problem and no page.
    re_path(r"^api/", csrf_exempt(problem.handler404)),
    path("admin/", admin.site.urls),
]

handler400 = "operations.api.problem.handler400"
handler403 = "operations.api.problem.handler403"
handler404 = "operations.api.problem.handler404"
handler500 = "operations.api.problem.handler500"
