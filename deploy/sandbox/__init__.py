"""The sandbox: a stand-in for the two outside services, as a process of its own.

It plays the payment gateway (``/gateway``, in Stripe's wire format and by Stripe's rules
for idempotency keys) and the supplier (``/supplier``), and keeps a ledger of every charge
in its own SQLite file. That ledger, not the platform's database, is the witness for
"exactly once". ``/faults`` makes either part slow, failing, silent or declining.

Run it with ``python -m deploy.sandbox --port 8010 --db sandbox.sqlite3``.
"""
