"""A conversation's event history, read: steps, the transcript, events, forks."""
