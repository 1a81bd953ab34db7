"""What people do to a run: request, approve, deny, delegate, grant, schedule, stop."""
