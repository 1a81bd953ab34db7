"""How fast it is, measured against what the same database does when asked without us."""
