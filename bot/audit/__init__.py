"""The change log: append, sign, verify, search, export."""
