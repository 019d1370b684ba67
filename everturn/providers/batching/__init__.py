"""Providers' batches: many requests at once, at a lower price, answered within a day."""
