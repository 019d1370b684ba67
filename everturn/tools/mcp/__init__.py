"""Tools of MCP servers: listed by the worker, called as activities under their own names."""
