"""The API door: what the pages do, as JSON for programs that come with a token."""
