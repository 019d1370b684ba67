"""What is Python's and the machine's own: imports, files, garbage collection, things at the same time."""
