"""Fault trees of services, and the guard that keeps their last leg standing. Pure."""
