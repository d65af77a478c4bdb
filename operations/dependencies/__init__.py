"""What is called outside: with a time-out, a breaker, a retry budget and a bulkhead."""

from operations.dependencies.attempt import calling
from operations.dependencies.dependency import Dependency, registered
from operations.dependencies.policy import Breaker, Budget, Look

__all__ = ["Breaker", "Budget", "Dependency", "Look", "calling", "registered"]
