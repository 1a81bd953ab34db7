"""What machines do with a run: plan, gate, execute, recover."""
