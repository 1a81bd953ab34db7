"""What a crash leaves, held against what the hosts have: their ledgers, never our own database."""
