"""Brings the database to where the platform can start: migrations, then the demo data.

Run as ``python -m deploy.local.fill TOKENS_FILE``. What ``manage.py migrate`` and
``manage.py demo`` do, in one process, since Django takes a second to start.
"""

import io
import sys

import django
from django.core.management import call_command


def main(tokens_file: str) -> None:
    django.setup()
    call_command("migrate", "--noinput", "--verbosity", "0")
    # What this one prints are secrets; the file has them, too.
    call_command("demo", "--tokens-file", tokens_file, stdout=io.StringIO())


if __name__ == "__main__":
    main(sys.argv[1])
