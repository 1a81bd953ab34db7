"""The change log: append, sign, verify, prove."""
