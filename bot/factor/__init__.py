"""Second factors: what somebody has besides a chat account, and how they show it."""
