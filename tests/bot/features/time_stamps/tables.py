"""It adds no route and no command."""
