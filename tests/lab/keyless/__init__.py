"""An app that takes the guard of the key out of the accepting statement: a negative control."""
