"""Benchmarks: Keyturn beside the same database or SSH client without it."""
