"""Sessions, API tokens and second factors."""
