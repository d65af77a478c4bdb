"""All settings, in one file, read from the environment once at start-up.

Durations are seconds. The relations between them that keep the system correct are
held by system checks (``operations/checks.py``), so a value that breaks one stops the
process before it does harm.
"""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from redis.backoff import NoBackoff
from redis.retry import Retry

from config import env

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Who this process is -------------------------------------------------------------

#: ``api``, ``worker``, ``dispatcher``, ``beat`` or ``manage``.
SEKALI_ROLE = env.text("SEKALI_ROLE", "manage")

DEBUG = env.flag("DEBUG", False)
SECRET_KEY = env.text("SECRET_KEY")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])

#: Modules of further Django apps; the addresses in their ``urls`` come under ``/api/v1/``.
EXTRA_APPS = env.words("EXTRA_APPS", [])

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
    *EXTRA_APPS,
]

MIDDLEWARE = [
    "operations.api.correlation.CorrelationMiddleware",
    "operations.api.privacy.PrivacyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
#: Files of admin and documentation page come straight from their packages, without a copy.
WHITENOISE_USE_FINDERS = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

# --- PostgreSQL: the truth -----------------------------------------------------------

_database = env.database("DATABASE_URL", "postgresql://postgres@localhost:5432/sekali")

#: Workers and dispatcher run at READ COMMITTED; an API may be set stricter, and then
#: retries serialization failures.
DATABASE_ISOLATION = env.text("DATABASE_ISOLATION", "read committed")
#: A statement that waits longer for a row lock gives up (for a claim: the row is busy).
DATABASE_LOCK_TIMEOUT = env.seconds("DATABASE_LOCK_TIMEOUT", 5)
#: A stopped process loses its transaction, and with it its row locks, after this long.
DATABASE_IDLE_IN_TRANSACTION_TIMEOUT = env.seconds("DATABASE_IDLE_IN_TRANSACTION_TIMEOUT", 15)
DATABASE_STATEMENT_TIMEOUT = env.seconds("DATABASE_STATEMENT_TIMEOUT", 30)
#: A pooler that lends sessions for a transaction stands in between (docs/pooler.md): these
#: settings are then given to the role, since a session has them from nobody else.
DATABASE_POOLED = env.flag("DATABASE_POOLED", False)

_server_settings = {
    "default_transaction_isolation": DATABASE_ISOLATION.replace(" ", r"\ "),
    "lock_timeout": f"{DATABASE_LOCK_TIMEOUT * 1000:.0f}",
    "idle_in_transaction_session_timeout": f"{DATABASE_IDLE_IN_TRANSACTION_TIMEOUT * 1000:.0f}",
    # For statements that are prepared, which are those run for every operation. Each finds its
    # rows by a key: no plan would be better for one value than for another.
    "plan_cache_mode": "force_generic_plan",
}
if SEKALI_ROLE != "manage":
    _server_settings["statement_timeout"] = f"{DATABASE_STATEMENT_TIMEOUT * 1000:.0f}"

_startup_options = " ".join(f"-c {name}={value}" for name, value in _server_settings.items())

DATABASES = {
    "default": {
        **_database,
        "ATOMIC_REQUESTS": False,
        # Such a cursor belongs to a session.
        "DISABLE_SERVER_SIDE_CURSORS": DATABASE_POOLED,
        # Connections are kept for the life of a thread. Nothing probes them before use:
        # the first statement of a request or of an attempt is safe to repeat, and is
        # repeated on a new connection when the old one turns out to be dead.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            **_database["OPTIONS"],
            "application_name": f"sekali-{SEKALI_ROLE}",
            **({} if DATABASE_POOLED else {"options": _startup_options}),
            # After how many times a statement is prepared, of those that may be: see
            # operations/database.py.
            "prepare_threshold": None if DATABASE_POOLED else 2,
            "connect_timeout": 3,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
    }
}

# --- Valkey or Redis: broker, cache, leases ------------------------------------------

#: ``redis://``, ``rediss://``, ``sentinel://`` or ``amqp://``, ``amqps://``; see
#: docs/brokers.md for each.
BROKER_URL = env.text("BROKER_URL", "redis://localhost:6379/0")
LOCKS_URL = env.text("LOCKS_URL", "redis://localhost:6379/1")
CACHE_URL = env.text("CACHE_URL", "redis://localhost:6379/2")
#: Where leases are kept: ``valkey``, on the server above, or ``postgres``, in rows.
LOCKS_BACKEND = env.text("LOCKS_BACKEND", "valkey")
#: How long one call to the lease server may take; below a quarter of the lease TTL.
LOCKS_TIMEOUT = env.seconds("LOCKS_TIMEOUT", 0.5)
CACHE_TIMEOUT = env.seconds("CACHE_TIMEOUT", 0.25)

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": CACHE_URL,
        "KEY_PREFIX": "sekali",
        "OPTIONS": {
            "SOCKET_CONNECT_TIMEOUT": CACHE_TIMEOUT,
            "SOCKET_TIMEOUT": CACHE_TIMEOUT,
            "SERIALIZER": "django_redis.serializers.json.JSONSerializer",
            "CONNECTION_POOL_KWARGS": {
                # One try: what a reader cannot have at once it takes from the database.
                "retry": Retry(NoBackoff(), 0),
                "protocol": 2,
                "driver_info": None,  # two round trips less for each new connection
                "socket_keepalive": True,
                "max_connections": 1000,
            },
        },
    }
}
#: A cache that did not answer is left alone for this long, by each process for itself.
CACHE_REST = env.seconds("CACHE_REST", 2)
#: An invalidation is applied once more from its record after this long.
CACHE_REPAIR_DELAY = env.seconds("CACHE_REPAIR_DELAY", 3)
#: Loads from the source that may go on at once in a process, and those of all processes
#: together that nobody stores; how long one waits for its turn.
CACHE_LOADS = env.whole("CACHE_LOADS", 4, least=1)
CACHE_LOADS_TOGETHER = env.whole("CACHE_LOADS_TOGETHER", 16, least=1)
CACHE_LOAD_WAIT = env.seconds("CACHE_LOAD_WAIT", 2)
#: A sample of what is cached is compared with the database this often.
CACHE_AUDIT_INTERVAL = env.seconds("CACHE_AUDIT_INTERVAL", 60)

# --- Operations ----------------------------------------------------------------------

#: A claim without a heartbeat for this long is rescued.
SEKALI_CLAIM_TTL = env.seconds("SEKALI_CLAIM_TTL", 30)
#: A lease outlives the claim it belongs to, so that no one slips in before the rescue.
SEKALI_LEASE_TTL = env.seconds("SEKALI_LEASE_TTL", 30)
SEKALI_SOFT_TIME_LIMIT = env.seconds("SEKALI_SOFT_TIME_LIMIT", 60)
SEKALI_TIME_LIMIT = env.seconds("SEKALI_TIME_LIMIT", 90)
#: Delays before the second, third, … attempt; jitter comes on top.
SEKALI_RETRY_BACKOFF = env.seconds_list("SEKALI_RETRY_BACKOFF", (5, 15, 45, 120))
#: A row that found its resource busy is looked at again after this long.
SEKALI_PARK_DELAY = env.seconds("SEKALI_PARK_DELAY", 3)
#: An operation deferred for longer than this is dead: an operator has to look.
SEKALI_DEFER_LIMIT = env.seconds("SEKALI_DEFER_LIMIT", 3600)
#: After this many lost workers an operation is dead (it is probably what kills them).
SEKALI_MAX_LOSSES = env.whole("SEKALI_MAX_LOSSES", 3, least=1)
#: A bug is retried this often: a deploy may mend it, repetition will not.
SEKALI_MAX_BUG_RETRIES = env.whole("SEKALI_MAX_BUG_RETRIES", 2)
#: Keys of ended operations are kept this long, counted from the end (seconds).
SEKALI_KEY_RETENTION = env.seconds("SEKALI_KEY_RETENTION", 72 * 3600)
SEKALI_PURCHASE_KEY_RETENTION = env.seconds("SEKALI_PURCHASE_KEY_RETENTION", 45 * 86400)
#: Ended operations whose key is gone, their attempts and settled dead letters.
SEKALI_OPERATION_RETENTION = env.seconds("SEKALI_OPERATION_RETENTION", 90 * 86400)

#: The dispatcher rests this long when a round found nothing.
SEKALI_DISPATCH_INTERVAL = env.seconds("SEKALI_DISPATCH_INTERVAL", 0.5)
SEKALI_DISPATCH_BATCH = env.whole("SEKALI_DISPATCH_BATCH", 2000, least=1)
#: Two readings of a queue this far apart, both empty, are evidence of a lost message.
SEKALI_EVIDENCE_INTERVAL = env.seconds("SEKALI_EVIDENCE_INTERVAL", 5)
#: A message is not called lost before this age.
SEKALI_EVIDENCE_AGE = env.seconds("SEKALI_EVIDENCE_AGE", 10)
#: The same operation is sent again on evidence at most this often.
SEKALI_RESEND_INTERVAL = env.seconds("SEKALI_RESEND_INTERVAL", 60)

#: Messages of one owner that may be in the broker at once: who comes after them waits for
#: so many at most, and not for all that this owner has.
SEKALI_OWNER_WINDOW = env.whole("SEKALI_OWNER_WINDOW", 1000, least=10)
#: A kind that is not critical is refused while more of it waits than this, or one of it has
#: waited to be begun for longer than this (seconds).
SEKALI_SHED_DEPTH = env.whole("SEKALI_SHED_DEPTH", 100_000, least=1)
SEKALI_SHED_AGE = env.seconds("SEKALI_SHED_AGE", 3600)

# --- What is called outside ----------------------------------------------------------

#: A breaker opens when, of this many calls or more in a window (seconds), half failed.
SEKALI_BREAKER_WINDOW = env.seconds("SEKALI_BREAKER_WINDOW", 10)
SEKALI_BREAKER_MINIMUM = env.whole("SEKALI_BREAKER_MINIMUM", 10, least=1)
#: It stays open this long before a single call may try; longer each time that fails.
SEKALI_BREAKER_COOLDOWN = env.seconds("SEKALI_BREAKER_COOLDOWN", 5)
#: Retries a second that call one dependency, beside 20 % of the first tries.
SEKALI_RETRY_BUDGET_FLOOR = env.seconds("SEKALI_RETRY_BUDGET_FLOOR", 1)

# --- API -----------------------------------------------------------------------------

SEKALI_BODY_LIMIT = env.whole("SEKALI_BODY_LIMIT", 64 * 1024, least=1024)
SEKALI_BODY_TIMEOUT = env.seconds("SEKALI_BODY_TIMEOUT", 15)
#: Threads of one API process; each keeps one database connection.
SEKALI_API_THREADS = env.whole("SEKALI_API_THREADS", 8, least=1)
#: Writes per owner and kind, and reads per owner, in one window.
SEKALI_RATE_LIMIT = env.whole("SEKALI_RATE_LIMIT", 600, least=1)
SEKALI_READ_RATE_LIMIT = env.whole("SEKALI_READ_RATE_LIMIT", 3000, least=1)
SEKALI_RATE_WINDOW = env.seconds("SEKALI_RATE_WINDOW", 10)
#: After a failed publish an API process leaves publishing to the dispatcher this long.
SEKALI_PUBLISH_PAUSE = env.seconds("SEKALI_PUBLISH_PAUSE", 5)

CORS_ALLOWED_ORIGINS = env.words("CORS_ORIGINS", [])
CORS_URLS_REGEX = r"^/api/.*$"
CORS_ALLOW_HEADERS = [
    "accept",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "prefer",
    "traceparent",
    "x-request-id",
]
CORS_EXPOSE_HEADERS = ["Location", "Retry-After", "ETag", "Idempotent-Replayed", "X-Request-ID"]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["operations.api.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["operations.api.parser.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "operations.api.negotiation.JSONAnyway",
    "DEFAULT_THROTTLE_CLASSES": ["operations.api.limits.ReadLimit"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "operations.api.problem.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "COERCE_DECIMAL_TO_STRING": True,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Sekali",
    "DESCRIPTION": "Operations that happen once, for clients that may send them many times.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

# --- Celery --------------------------------------------------------------------------

#: Redis hands a message out again after this long. Above every time limit (a check).
SEKALI_VISIBILITY_TIMEOUT = env.seconds("SEKALI_VISIBILITY_TIMEOUT", 300)
#: RabbitMQ takes a message back, and closes the channel, when a worker has not answered
#: for it in this time. Tells what its ``consumer_timeout`` is (the server's own default).
SEKALI_CONSUMER_TIMEOUT = env.seconds("SEKALI_CONSUMER_TIMEOUT", 1800)
#: Bytes; a message above is none of ours, and goes to the dead letters.
SEKALI_MESSAGE_LIMIT = env.whole("SEKALI_MESSAGE_LIMIT", 256 * 1024, least=4096)
#: A message that was put back more often goes to the dead letters: it may be what kills
#: workers. Its operation, if it has one, is sent again by the row.
SEKALI_DELIVERY_LIMIT = env.whole("SEKALI_DELIVERY_LIMIT", 20, least=1)
#: The dispatcher looks into the dead letter queue this often.
SEKALI_RECORD_INTERVAL = env.seconds("SEKALI_RECORD_INTERVAL", 1)
#: A deploy lets running attempts end for this long, then hands them back.
SEKALI_SHUTDOWN_GRACE = env.seconds("SEKALI_SHUTDOWN_GRACE", 8)
#: A worker's child above this size (MiB) is replaced after its attempt.
SEKALI_CHILD_MEMORY = env.whole("SEKALI_CHILD_MEMORY", 400, least=50)

# An API thread must not wait for a broker that is gone; a worker blocks in BRPOP for a
# second at a time, so its socket may wait longer.
_broker_timeout = 1.0 if SEKALI_ROLE == "api" else 5.0
#: Seconds in which the broker must have taken, or confirmed, what is published.
SEKALI_PUBLISH_TIMEOUT = _broker_timeout

CELERY_BROKER_URL = BROKER_URL
# Left to itself kombu accepts any certificate.
CELERY_BROKER_USE_SSL = {
    "rediss": {"ssl_cert_reqs": ssl.CERT_REQUIRED},
    "amqps": {
        "cert_reqs": ssl.CERT_REQUIRED,
        "ca_certs": env.text("BROKER_CA_CERTS") or None,
        "server_hostname": urlsplit(BROKER_URL).hostname,
    },
}.get(urlsplit(BROKER_URL).scheme, False)
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any]
if BROKER_URL.startswith("amqp"):
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "read_timeout": _broker_timeout,
        "write_timeout": _broker_timeout,
        "confirm_publish": True,
    }
else:
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "visibility_timeout": SEKALI_VISIBILITY_TIMEOUT,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": _broker_timeout,
        "socket_connect_timeout": 1.0,
        "socket_keepalive": True,
        # Also after how long an unanswered BRPOP counts as a dead connection.
        "health_check_interval": 5,
        # One list a queue instead of four: priorities are separate queues here.
        "priority_steps": [0],
        "queue_order_strategy": "round_robin",
        # For sentinel:// only.
        "master_name": env.text("BROKER_SENTINEL_MASTER", "mymaster"),
        "sentinel_kwargs": {"socket_timeout": 1.0, "socket_connect_timeout": 1.0},
    }
CELERY_BROKER_CONNECTION_TIMEOUT = 2
CELERY_BROKER_HEARTBEAT = 20
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# RabbitMQ closes a channel, not the connection, when an answer is overdue.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_STORE_EAGER_RESULT = False
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_DEFAULT_QUEUE = "housekeeping"
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_TASK_SOFT_TIME_LIMIT = SEKALI_SOFT_TIME_LIMIT
CELERY_TASK_TIME_LIMIT = SEKALI_TIME_LIMIT
CELERY_WORKER_CONSUMER = "operations.worker.consumer:Consumer"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
#: Messages with an ETA are held in memory; none of ours has one.
CELERY_WORKER_ETA_TASK_LIMIT = 1000
# A running attempt holds its claim, not its message: a second copy finds the claim taken.
# To end it with the connection would count as the loss of a worker.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_ENABLE_PREFETCH_COUNT_REDUCTION = False
CELERY_WORKER_LOST_WAIT = 1.0
CELERY_WORKER_MAX_MEMORY_PER_CHILD = SEKALI_CHILD_MEMORY * 1024
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
#: Flower's task list needs events, which cost about half of the throughput of no-op
#: tasks; queue lengths need none. So they are a choice.
CELERY_WORKER_SEND_TASK_EVENTS = env.flag("WORKER_EVENTS", False)
CELERY_BEAT_SCHEDULE = {
    "prune": {
        "task": "operations.prune",
        "schedule": env.seconds("SEKALI_PRUNE_INTERVAL", 300),
        "options": {"queue": "housekeeping", "expires": 300},
    },
    "reconcile": {
        "task": "purchases.reconcile",
        "schedule": env.seconds("SEKALI_RECONCILE_INTERVAL", 300),
        "options": {"queue": "housekeeping", "expires": 300},
    },
    "audit-caches": {
        "task": "locks.audit_caches",
        "schedule": CACHE_AUDIT_INTERVAL,
        "options": {"queue": "housekeeping", "expires": CACHE_AUDIT_INTERVAL},
    },
}

# --- Outside services ----------------------------------------------------------------

STRIPE_API_KEY = env.text("STRIPE_API_KEY")
#: Empty: Stripe itself. The sandbox answers in Stripe's words.
STRIPE_API_BASE = env.text("STRIPE_API_BASE")
#: One call; a look-up, a charge and a retrieval must fit into the soft time limit.
STRIPE_TIMEOUT = env.seconds("STRIPE_TIMEOUT", 15)
#: How long the gateway remembers an idempotency key at least (Stripe: a day).
STRIPE_KEY_LIFETIME = env.seconds("STRIPE_KEY_LIFETIME", 86_400)
SUPPLIER_URL = env.text("SUPPLIER_URL")
SUPPLIER_TIMEOUT = env.seconds("SUPPLIER_TIMEOUT", 10)
SENTRY_DSN = env.text("SENTRY_DSN")

# --- Safety of what leaves the browser -----------------------------------------------

BEHIND_TLS = env.flag("BEHIND_TLS", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS else None
SECURE_SSL_REDIRECT = BEHIND_TLS
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = BEHIND_TLS
SECURE_HSTS_PRELOAD = BEHIND_TLS
SESSION_COOKIE_SECURE = BEHIND_TLS
CSRF_COOKIE_SECURE = BEHIND_TLS
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"

# --- Logs ----------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "operations.logs.JSONFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": env.text("LOG_LEVEL", "INFO")},
    "loggers": {
        # Every answer has its line from the correlation middleware.
        "django.request": {"level": "ERROR"},
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "httpx": {"level": "WARNING"},
        "stripe": {"level": "WARNING"},
    },
}
