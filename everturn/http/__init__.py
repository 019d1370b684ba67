"""HTTP's bytes, decoded: server-sent events, compressed answers, numbers and times in headers."""
