"""Its rows in the tables of tests."""

COMMANDS = {"nagios": "service"}
COMMANDS_WITHOUT_JSON = {"nagios": "what Nagios reads, as it reads it"}
