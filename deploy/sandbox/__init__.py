"""The sandbox: a stand-in for the two outside services, as a process of its own.

It plays the payment gateway (``/gateway``, in Stripe's wire format and by Stripe's rules
for idempotency keys) and the supplier (``/supplier``), and keeps a ledger of every charge
in its own SQLite file. That ledger, not the platform's database, is the witness for
"exactly once". Run it with ``python -m deploy.sandbox --port 8010 --db sandbox.sqlite3``;
everything but calls in flight survives ``kill -9``.

Controls, all JSON:

- ``GET /ledger``: ``{"charges": [{"key", "amount", "currency", "status"}],
  "supplier_calls": n}``, a row for each charge, ``succeeded``, ``declined`` or
  ``refunded``. ``DELETE /ledger`` forgets all payments with their keys, and the count.
- ``PUT /faults`` replaces all faults: ``{"gateway": {"mode": "slow", "delay_s": 3},
  "supplier": {…}}``; a part left out is ``ok``. ``GET`` shows them with their hits,
  ``DELETE`` clears them. See :mod:`deploy.sandbox.faults` for the members. Modes:
  ``slow`` waits and then acts, though the caller may be gone; ``error`` answers 500 without
  acting, and stores that answer under the key; ``drop_reply`` acts and closes the
  connection; ``decline`` refuses the card (the supplier: answers 403).
- ``POST /gateway/forget`` with ``{"key": "…"}``, or without a body for all: Stripe forgets
  keys after a day, a test has no day.
- ``PUT /supplier/users/{user}`` with ``{"revision": 2, "items": [{"sku", "quantity"}]}``
  sets what ``GET /supplier/users/{user}/items?page=&page_size=`` tells. A user about whom
  nothing was set owns one ``sku-1`` and one ``sku-scarce`` at revision 1.
- ``GET /healthz``.
"""
