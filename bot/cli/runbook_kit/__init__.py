"""The kit for people who write runbooks: new files, trials on hosts, recordings, tests, lint."""
