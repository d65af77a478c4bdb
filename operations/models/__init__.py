from operations.models.attempt import Attempt
from operations.models.broker_mark import BrokerMark
from operations.models.control import AuditEntry, KindControl
from operations.models.dead_letter import UNSETTLED, DeadLetter, LetterState
from operations.models.idempotency import ONE_OPERATION_PER_KEY, IdempotencyRecord
from operations.models.operation import ENDED, ONE_RUNNING_PER_RESOURCE, OPEN, Operation, State
from operations.models.token import ApiToken
from operations.outcomes import Category, Outcome

__all__ = [
    "ENDED",
    "ONE_OPERATION_PER_KEY",
    "ONE_RUNNING_PER_RESOURCE",
    "OPEN",
    "UNSETTLED",
    "ApiToken",
    "Attempt",
    "AuditEntry",
    "BrokerMark",
    "Category",
    "DeadLetter",
    "IdempotencyRecord",
    "KindControl",
    "LetterState",
    "Operation",
    "Outcome",
    "State",
]
