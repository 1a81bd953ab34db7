"""Ask ticket systems whether a change is approved, and write notes to its ticket."""
