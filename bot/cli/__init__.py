"""Families of commands: `keyturn policy …`."""
