"""The kinds of steps: what shows the state, which command changes it, and how it is undone."""
