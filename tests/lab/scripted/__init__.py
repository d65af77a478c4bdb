"""Kinds of operation for the tests: the payload says how each attempt ends."""
