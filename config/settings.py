"""All settings, in one file, read from the environment once at start-up.

Durations are seconds. The relations between them that keep the system correct are
held by system checks (``operations/checks.py``), so a value that breaks one stops the
process before it does harm.
"""

from pathlib import Path

from config import env

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Who this process is -------------------------------------------------------------

#: ``api``, ``worker``, ``dispatcher``, ``beat`` or ``manage``.
SEKALI_ROLE = env.text("SEKALI_ROLE", "manage")

DEBUG = env.flag("DEBUG", False)
SECRET_KEY = env.text("SECRET_KEY")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "config.apps.ConfigApp",
    "purchases.apps.PurchasesApp",
    "inventory.apps.InventoryApp",
    "operations.apps.OperationsApp",
    "locks.apps.LocksApp",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "corsheaders",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    *env.words("EXTRA_APPS", []),
]

MIDDLEWARE = [
    "operations.api.correlation.CorrelationMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "config.middleware.AdminOnly",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "static"
