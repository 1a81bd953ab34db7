"""Other systems: signed deliveries, and HTTP that reaches no private address."""
