"""Its rows in the tables of tests."""

COMMANDS = {"nagios": "service"}
COMMANDS_WITHOUT_JSON = {"nagios": "what Nagios reads, as it reads it"}
COMMANDS_OF_OTHER_PROGRAMS = {"nagios": "a plugin: exit status 3, and a line on its output"}
