"""Schedules: approved once, and run at their due times; and the calendar of what comes."""
