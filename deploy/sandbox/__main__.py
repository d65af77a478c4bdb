"""``python -m deploy.sandbox --host 127.0.0.1 --port 8010 --db sandbox.sqlite3``."""

import argparse
import asyncio
import logging
import signal
import sqlite3
from pathlib import Path

from deploy.sandbox.application import Sandbox
from deploy.sandbox.database import Database
from deploy.sandbox.server import Server

logger = logging.getLogger("sandbox")


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.sandbox", description="Supplier and payment gateway to try with."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8010, help="0 takes a free one")
    parser.add_argument("--db", type=Path, required=True, help="SQLite file of the ledger")
    parser.add_argument(
        "--search-lag", type=float, default=60.0, help="seconds the gateway's search lags behind"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        asyncio.run(_serve(options.host, options.port, options.db, options.search_lag))
    except (OSError, sqlite3.Error) as error:
        parser.exit(1, f"The sandbox cannot serve: {error}\n")


async def _serve(host: str, port: int, file: Path, search_lag: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    database = Database(file)
    server = Server(Sandbox(database, search_lag))
    try:
        logger.info("Sandbox at http://%s:%s", host, await server.start(host, port))
        await stop.wait()
        await server.close()
    finally:
        database.close()


if __name__ == "__main__":
    main()
