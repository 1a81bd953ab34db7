"""Drift: what changed outside Keyturn since it set it. Pure."""
