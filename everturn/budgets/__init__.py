"""What a tenant's conversations may use together."""
