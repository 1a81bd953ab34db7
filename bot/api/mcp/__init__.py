"""MCP: requests of agents over the Model Context Protocol, at /mcp."""
