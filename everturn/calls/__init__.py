"""A call while it is open: whom it waits for, what people decide, what its result is if it did not run here."""
