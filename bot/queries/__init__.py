"""What people may see and do: these modules read, and change nothing."""
