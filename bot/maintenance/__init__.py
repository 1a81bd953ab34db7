"""Backup, restore, copy, key rotation and housekeeping."""
