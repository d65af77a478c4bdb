"""Celery as it comes, for negative controls: without our transport, consumer and fixup."""
