"""HTTP's bytes, decoded: server-sent events, compressed answers."""
