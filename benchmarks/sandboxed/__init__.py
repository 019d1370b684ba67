"""Two workflows as their files are, for what Temporal's sandbox takes to load each."""
