"""What is done about the calls of a worker that is lost."""
