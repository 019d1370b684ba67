"""A model that may decide on calls in people's place, within rules."""
