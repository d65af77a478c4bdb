"""Settings, URLs and processes of the project.

Celery's application is made here, so that every process that loads the settings
publishes through it.
"""

from config.celery import app as celery_app

__all__ = ["celery_app"]
