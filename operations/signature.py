"""One name for all failures that have one cause."""

import hashlib
import re
import traceback
from types import TracebackType

from django.conf import settings

# One pass, the first alternative that fits wins. What follows ``keep`` tells faults apart,
# although it is a number; the rest differs from case to case.
_CHANGING = re.compile(
    r"""
      (?P<keep> \b(?:status|http(?:/\d(?:\.\d)?)?|errno|sqlstate|code|error)\b
          [\s:=#(\[]{0,3} \d\w{1,4}\b
        | (?:(?<=:\s)|^) [1-5]\d\d (?=:\s)
        | \bHTTP/\d(?:\.\d)?\b )
    | (?P<uuid> \b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b )
    | (?P<address> \b0x[0-9a-f]+\b )
    | (?P<time> \b\d{4}-\d\d-\d\d(?:[T\s]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)? )
    | (?P<email> (?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+ )
    | (?P<ip> \b(?:\d{1,3}\.){3}\d{1,3}\b | \[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{1,4}\]? (?![\w.]) )
    | (?P<named> \b[a-z]{2,8}_(?=[a-z]*\d|\d*[a-z]*[A-Z])[0-9A-Za-z]{6,}\b )
    | (?P<id> \b(?=[a-z]*\d)(?=\d*[a-z])[0-9a-z]{8,}\b )
    | (?P<hex> \b[0-9a-f]{16,}\b )
    | (?P<n> \d+(?:[.:,]\d+)* )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BLANK = re.compile(r"(?:\\r|\\n|\s)+")


def normalised(message: str) -> str:
    """The message without what differs from case to case: ids, numbers, addresses, line ends.

    Numbers that tell one fault from another stay: statuses, error codes.
    """
    return _CHANGING.sub(_placeholder, _BLANK.sub(" ", message[:2_000])).strip()[:500]


def _placeholder(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "keep":
            return match[0]
        case "named":
            return match[0].partition("_")[0] + "_<id>"
        case name:
            return f"<{name}>"


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
