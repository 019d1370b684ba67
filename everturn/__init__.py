"""everturn: durable agent loops on Temporal."""
