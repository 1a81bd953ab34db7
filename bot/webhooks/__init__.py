"""Webhooks in and out: configuration, formats, signatures."""
