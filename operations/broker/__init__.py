"""What differs between brokers, behind one small interface."""

from operations.broker.interface import Broker, BrokerUnavailable, DeadMessage, Mark
from operations.broker.selection import get_broker

__all__ = ["Broker", "BrokerUnavailable", "DeadMessage", "Mark", "get_broker"]
