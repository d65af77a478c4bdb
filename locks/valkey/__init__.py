"""Leases in Valkey or Redis: one server, or a primary with replicas (not a cluster)."""
