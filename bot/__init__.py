"""The service: takes requests from chat, web and clock, and sees each one through."""
