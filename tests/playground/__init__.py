"""Real daemons on loopback, for acceptance tests and for the demonstration."""
