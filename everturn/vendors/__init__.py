"""Messages as vendors write them: parts, content blocks, results without a call."""
