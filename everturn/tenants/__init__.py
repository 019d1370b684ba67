"""Whose conversations these are: the tenant, its budget and priority, and metadata."""
