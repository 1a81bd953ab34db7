"""Lines for a shell: those with a plain meaning, those that only read, and the others."""
