"""One API process for all tests that only ask it; they bring users of their own."""

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.lab.fixtures import use_database
from tests.lab.processes import Stack
from tests.lab.services import DATABASE, Lab
from tests.operations.api.client import Client, new_client


@pytest.fixture(scope="session")
def api_stack(
    lab: Lab, migrated_template: str, django_db_blocker: DjangoDbBlocker
) -> Iterator[Stack]:
    """An API without workers: what it accepts stays pending."""
    for server in lab.servers:
        server.start()
    url = lab.postgres.create(f"{DATABASE}_api", migrated_template)
    with Stack(lab, url, name="api") as stack:
        stack.start(workers=0, dispatchers=0, sandbox=False)
        yield stack


@pytest.fixture
def api(api_stack: Stack, django_db_blocker: DjangoDbBlocker) -> Iterator[Client]:
    """A client with a user and a token of its own; Django here uses the API's database."""
    api_stack.recover()
    with django_db_blocker.unblock():
        use_database(f"{DATABASE}_api")
        with new_client(api_stack.api_url) as client:
            yield client
        use_database(DATABASE)
