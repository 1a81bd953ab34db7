"""Pure rules of the domain: no I/O, no clock of its own."""
