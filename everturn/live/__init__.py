"""Text that is followed while it is written: by heartbeats, or by a lane beside Temporal."""
