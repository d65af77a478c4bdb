"""What a request costs, counted on the wire, at READ COMMITTED."""

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from operations.models import Operation
from tests.lab.processes import Stack
from tests.lab.scripted import models as scripted
from tests.lab.services import DATABASE, ValkeyServer
from tests.operations.api.client import Client, new_client

TIMES = 30


class Wire:
    """Counts what the API sends to PostgreSQL and to the two Valkeys."""

    def __init__(self, stack: Stack, session: psycopg.Connection[tuple[object, ...]]) -> None:
        self._stack = stack
        self._session = session

    def reset(self) -> None:
        self._session.execute("SELECT pg_stat_statements_reset()")
        for server in (self._stack.lab.broker, self._stack.lab.cache):
            with server.client() as client:
                client.config_resetstat()

    def statements(self) -> Counter[str]:
        """How often each statement was sent by the platform's user, by its beginning."""
        rows = self._session.execute(
            "SELECT query, calls FROM pg_stat_statements AS s "
            "JOIN pg_roles AS r ON r.oid = s.userid "
            "WHERE toplevel AND r.rolname <> current_user AND s.dbid = "
            "(SELECT oid FROM pg_database WHERE datname = current_database()) "
            # The server's own look at foreign keys, which is on no wire.
            "AND query NOT LIKE 'SELECT 1 FROM ONLY %'"
        ).fetchall()
        counted: Counter[str] = Counter()
        for query, calls in rows:
            counted[" ".join(str(query).split())[:70]] += int(str(calls))
        return counted

    def commands(self, server: ValkeyServer) -> Counter[str]:
        """How often each command was sent to a Valkey."""
        with server.client() as client:
            stats = client.info("commandstats")
        ours = {"client|setinfo", "client|setname", "hello", "info", "config|resetstat", "auth"}
        counted = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
        return Counter({name: calls for name, calls in counted.items() if name not in ours})

    def round_trips(self, server: ValkeyServer) -> int:
        """How often a Valkey read from a connection; a few of that are of the counting itself."""
        with server.client() as client:
            return int(client.info("stats")["total_reads_processed"])


@pytest.fixture
def wire(stack: Stack) -> Iterator[Wire]:
    with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
        yield Wire(stack, session)


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    """Of an API with one thread, whose connections are made by a first round of requests."""
    stack.env["SEKALI_API_THREADS"] = "1"
    stack.start(workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        location = client.post(key="warm").headers["Location"]
        client.post(key="warm")
        client.get(location)
        yield client


def test_accepting_costs_two_statements_and_two_round_trips(
    client: Client, wire: Wire, stack: Stack
) -> None:
    """A1 A3: authentication 1, accept 1; rate limit 1, publish 1."""
    wire.reset()
    for n in range(TIMES):
        assert client.post(body={"number": n}).status_code == 202
    statements = wire.statements()
    assert sorted(statements.values()) == [TIMES, TIMES], statements
    assert {name.split()[0] for name in statements} == {"SELECT", "WITH"}
    assert wire.commands(stack.lab.cache)["evalsha"] == TIMES
    assert wire.commands(stack.lab.broker)["lpush"] == TIMES
    for server in (stack.lab.cache, stack.lab.broker):
        assert TIMES <= wire.round_trips(server) < 1.7 * TIMES


def test_a_replay_costs_two_statements_after_authentication(
    client: Client, wire: Wire, stack: Stack
) -> None:
    """A4: and no message."""
    for n in range(TIMES):
        client.post(body={"number": n}, key=f"k{n}")
    wire.reset()
    for n in range(TIMES):
        assert "Idempotent-Replayed" in client.post(body={"number": n}, key=f"k{n}").headers
    statements = wire.statements()
    assert sorted(statements.values()) == [TIMES] * 3, statements
    assert not wire.commands(stack.lab.broker)


def test_a_replay_of_a_conditional_request_costs_one(client: Client, wire: Wire) -> None:
    """A4 A9"""
    scripted.Counter.objects.create(name="version", value=3)
    client.post(key="k", headers={"If-Match": '"3"'})
    wire.reset()
    for _ in range(TIMES):
        assert client.post(key="k", headers={"If-Match": '"3"'}).status_code == 202
    assert sorted(wire.statements().values()) == [TIMES] * 2


def test_a_status_costs_one_statement_after_authentication(
    client: Client, wire: Wire, stack: Stack
) -> None:
    """A8: also when nothing has changed; polling triggers no work."""
    location = client.post().headers["Location"]
    before = Operation.objects.values().get(pk=location.rpartition("/")[2])
    wire.reset()
    for tag in ('"0"', '"1"'):
        for _ in range(TIMES):
            assert client.get(location, {"If-None-Match": tag}).status_code in (200, 304)
    statements = wire.statements()
    assert sorted(statements.values()) == [2 * TIMES] * 2, statements
    assert all(name.startswith("SELECT") for name in statements)
    assert not wire.commands(stack.lab.broker)
    assert Operation.objects.values().get(pk=location.rpartition("/")[2]) == before


def test_a_page_of_the_list_costs_one_statement_after_authentication(
    client: Client, wire: Wire
) -> None:
    """A8"""
    wire.reset()
    for _ in range(TIMES):
        client.get("/api/v1/operations?state=pending")
    assert sorted(wire.statements().values()) == [TIMES] * 2


def test_what_is_malformed_costs_no_statement_but_authentication(
    client: Client, wire: Wire
) -> None:
    """A2: and a token that cannot be one costs none at all."""
    wire.reset()
    for _ in range(TIMES):
        assert client.post(key="a b").status_code == 400
        assert client.post(body={"number": "x"}).status_code == 400
        assert client.post(headers={"Authorization": "Bearer nonsense"}).status_code == 401
        assert client.get("/api/v1/operations/x").status_code == 404
    assert list(wire.statements().values()) == [3 * TIMES]


def test_threads_keep_their_database_connections(stack: Stack) -> None:
    """A1: a session for each thread, whatever the number of requests."""
    stack.env["SEKALI_API_THREADS"] = "3"
    stack.start(workers=0, dispatchers=0, sandbox=False)
    seen: set[object] = set()
    with (
        stack.lab.postgres.connect(f"{DATABASE}_one") as session,
        new_client(stack.api_url) as client,
    ):
        for _ in range(60):
            assert client.post().status_code == 202
            seen |= {
                row[0]
                for row in session.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'sekali-api' "
                    "AND datname = current_database()"
                )
            }
    assert 1 <= len(seen) <= 3
