"""Connectors: typed queries and commands for each kind of system.

A connector for a system (`haproxy`, `zfs`, …) has queries, commands and parsers, and does no I/O.
Only `ssh_pool` and `https` open connections, and only `fleet` uses them.
"""
