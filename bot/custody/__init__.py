"""Custody of the change log: who witnesses it, what it says of the service, its key and rights."""
