"""An MCP server whose tools are agents: what it is asked is a conversation, and all that it knows is in Temporal."""
