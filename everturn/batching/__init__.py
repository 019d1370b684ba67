"""Turns that wait for a provider's batch: decision 0059. The providers' own batches are in `providers/batching/`."""
