"""Its rows in the tables of tests."""

COMMANDS = {"mcp": "service"}
COMMANDS_WITHOUT_JSON = {"mcp": "speaks MCP, with programs alone"}
