"""What is called outside: with a time-out, a breaker, a retry budget and a bulkhead."""

from operations.dependencies.attempt import calling
from operations.dependencies.dependency import Dependency, State, registered, states
from operations.dependencies.policy import Breaker, Budget, Look
from operations.dependencies.shared import Unshared

__all__ = [
    "Breaker",
    "Budget",
    "Dependency",
    "Look",
    "State",
    "Unshared",
    "calling",
    "registered",
    "states",
]
