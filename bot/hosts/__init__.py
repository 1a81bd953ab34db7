"""Hosts: import, enrolment, sudoers, live check, status."""
