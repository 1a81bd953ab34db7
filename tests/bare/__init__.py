"""Installing the Debian package where nothing else is."""
