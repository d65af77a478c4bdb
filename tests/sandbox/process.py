"""The sandbox as a real process, for the tests that talk to it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx

from deploy.local import parts
from tests.lab.processes import Process, answers
from tests.lab.services import Lab

API_KEY = "sk_test_sandbox"


class SandboxProcess:
    """A running sandbox with a ledger file of its own, and its controls."""

    def __init__(self, lab: Lab, name: str, search_lag: float) -> None:
        port = lab.port()
        self.url = f"http://127.0.0.1:{port}"
        self.gateway_url = f"{self.url}/gateway"
        self.supplier_url = f"{self.url}/supplier"
        command = parts.sandbox(os.environ, port, lab.directory / f"{name}.sqlite3")
        command = replace(command, argv=[*command.argv, "--search-lag", str(search_lag)])
        log = lab.directory / f"{name}.log"
        self.process = Process(
            lab.launcher, command, log, lambda _: answers(f"{self.url}/healthz")
        ).start()
        self.http = httpx.Client(base_url=self.url, timeout=10, trust_env=False)

    def charges(self) -> list[dict[str, Any]]:
        """The ledger's rows, oldest first."""
        rows: list[dict[str, Any]] = self.http.get("/ledger").json()["charges"]
        return rows

    def supplier_calls(self) -> int:
        """How often the supplier was asked."""
        return int(self.http.get("/ledger").json()["supplier_calls"])

    def faults(self, **parts_: Mapping[str, Any]) -> None:
        """Replace all faults, e.g. ``faults(gateway={"mode": "error"})``."""
        self.http.put("/faults", json=parts_).raise_for_status()

    def post(self, path: str, key: str | None = None, /, **form: str) -> httpx.Response:
        """One call to the gateway, e.g. ``post("/payment_intents", "k", amount="100")``."""
        headers = {"Authorization": f"Bearer {API_KEY}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.http.post(f"/gateway/v1{path}", data=form, headers=headers)

    def pay(self, key: str | None, /, **form: str) -> httpx.Response:
        """Create and confirm in one call, with a card that works unless ``form`` says else."""
        asked = {
            "amount": "500",
            "currency": "eur",
            "confirm": "true",
            "payment_method": "pm_card_visa",
            **form,
        }
        return self.post("/payment_intents", key, **asked)

    def get(self, path: str, **params: str) -> httpx.Response:
        """One look at the gateway."""
        headers = {"Authorization": f"Bearer {API_KEY}"}
        return self.http.get(f"/gateway/v1{path}", params=params, headers=headers)

    def reset(self) -> None:
        """No faults, no payments."""
        self.http.delete("/faults").raise_for_status()
        self.http.delete("/ledger").raise_for_status()

    def close(self) -> None:
        """End the process."""
        self.http.close()
        self.process.discard()


@contextmanager
def sandbox_process(
    lab: Lab, name: str = "sandbox", search_lag: float = 60.0
) -> Iterator[SandboxProcess]:
    """Run a sandbox; ``search_lag`` in seconds."""
    running = SandboxProcess(lab, name, search_lag)
    try:
        yield running
    finally:
        running.close()
