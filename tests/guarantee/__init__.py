"""What is tried against a host that checks people's signatures itself."""
