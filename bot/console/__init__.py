"""A Slack-shaped server for a machine without Slack."""
