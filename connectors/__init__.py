"""Typed adapters: what can be asked of each kind of system, and how to change it.

The dialects (`haproxy`, …) hold words only: queries, commands and parsers. Only `sessions` opens
connections, and only `fleet` hands them out.
"""
