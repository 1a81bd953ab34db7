"""Other systems: webhooks in and out, ticket systems, e-mail."""
