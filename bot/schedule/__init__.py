"""The door of time: schedules fire here, and are kept from the command line."""
