"""An MCP server whose tools are agents: each question starts a conversation, and all state is in Temporal."""
