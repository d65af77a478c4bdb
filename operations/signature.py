"""One name for all failures that have one cause."""

import hashlib
import re
import traceback
from types import TracebackType

from django.conf import settings

# Most specific first: a UUID is also hexadecimal, a date is also numbers.
_NOISE = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b[0-9a-f]{16,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b\d+(?:[.:,]\d+)*\b"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def normalised(message: str) -> str:
    """The message without what differs from case to case: ids, numbers, addresses."""
    for pattern, placeholder in _NOISE:
        message = pattern.sub(placeholder, message)
    return message.strip()[:500]


def signature(category: str, error_type: str, message: str, frame: str) -> str:
    """SHA-256 over category, type, normalised message and the innermost frame of our code."""
    text = "\n".join((category, error_type, normalised(message), frame))
    return hashlib.sha256(text.encode()).hexdigest()


def innermost_own_frame(trace: TracebackType | None) -> str:
    """``file:function`` of the deepest frame that is neither a library's nor Python's."""
    root = str(settings.BASE_DIR)
    for frame in reversed(traceback.extract_tb(trace)):
        if frame.filename.startswith(root) and "site-packages" not in frame.filename:
            return f"{frame.filename[len(root) :].lstrip('/')}:{frame.name}"
    return ""
