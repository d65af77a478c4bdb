"""What a newer version of the code has and an older one has not.

For processes started with ``EXTRA_APPS=tests.lab.scripted,tests.lab.newer``.
"""

from django.apps import AppConfig


class NewerApp(AppConfig):
    name = "tests.lab.newer"
    label = "newer"
