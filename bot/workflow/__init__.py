"""What people do to runs: request, approve, deny, delegate, grant, stop."""
