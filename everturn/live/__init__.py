"""A lane beside Temporal for text that is followed while it is written."""
