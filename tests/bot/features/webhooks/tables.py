"""Its rows in the tables of tests."""

COMMANDS = {"webhooks": "deliveries retried"}
