"""The inventory at the command line: looked at, taken over from elsewhere, added to."""
