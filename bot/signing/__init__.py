"""Signatures of people over plans."""
