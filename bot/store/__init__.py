"""The store: every run, kept for good. All SQL of the house."""
