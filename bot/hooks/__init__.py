"""Hooks: what other systems tell us and what we tell them, as signed HTTP requests."""
