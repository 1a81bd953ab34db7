"""REST API: the functions of the web pages as JSON, for programs with an API token."""
