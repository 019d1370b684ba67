"""When calls to providers may go out: what limits them, and where they wait. Decision 0034."""
