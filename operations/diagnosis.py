"""What is wrong with a message that came into the dead letter queue.

The same question for every broker, asked of the message itself: what a worker said of it
in passing is not kept by all of them.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from operations import registry
from operations.broker import DeadMessage
from operations.registry import UnknownKind


@dataclass(frozen=True)
class Diagnosis:
    """``operation`` is set when the message itself is in order and names one."""

    error_type: str
    detail: str
    task: str = ""
    operation: uuid.UUID | None = None


def diagnose(message: DeadMessage) -> Diagnosis:  # noqa: C901  (a list of cases)
    """The first thing that is wrong, as far as can be told without the database."""
    task = message.headers.get("task")
    name = task if isinstance(task, str) else ""
    size = len(message.body)
    if size > settings.SEKALI_MESSAGE_LIMIT:
        return Diagnosis("MessageTooLarge", f"Its body has {size} bytes.", name)
    if not message.headers:
        return Diagnosis("NoTask", "It is not a task message.")
    if not name:
        return Diagnosis("NoTask", "Its headers name no task.")
    if not isinstance(message.headers.get("id"), str):
        return Diagnosis("NoTaskId", "Its headers hold no id.", name)
    content_type = message.properties.get("content_type", message.properties.get("content-type"))
    if content_type != "application/json":
        return Diagnosis("ContentRefused", f"Its content type is {content_type!r}.", name)
    try:
        body: Any = json.loads(message.body)
    except (ValueError, RecursionError) as error:
        return Diagnosis("UnreadableBody", f"Its body cannot be read: {error}", name)
    if not (isinstance(body, list) and len(body) == 3 and isinstance(body[0], list)):
        return Diagnosis("NotATaskBody", "Its body is not [args, kwargs, embed].", name)
    try:
        (text,) = body[0]
        operation = uuid.UUID(text)
    except (ValueError, TypeError, AttributeError):
        if _is_known(name):
            detail = "Its arguments are not the id of an operation."
            return Diagnosis("BadArguments", detail, name)
        return Diagnosis("UnknownTask", f"No worker knows the task {name!r}.", name)
    if _is_known(name):
        detail = f"There is no such operation of kind {name!r}."
        return Diagnosis("NoSuchOperation", detail, name, operation)
    detail = f"No worker knows the task {name!r}."
    return Diagnosis(
        "UnknownTask", detail, name, operation if registry.may_be_a_kind(name) else None
    )


def _is_known(kind: str) -> bool:
    try:
        registry.get(kind)
    except UnknownKind:
        return False
    return True
