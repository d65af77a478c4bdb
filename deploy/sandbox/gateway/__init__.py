"""The payment gateway: Stripe's wire format and Stripe's rules for idempotency keys."""
