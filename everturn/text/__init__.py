"""Text, made fit to be shown, read and sent."""
