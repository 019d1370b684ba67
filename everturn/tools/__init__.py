"""What users write for the model to call, and what a call's schema and result are."""
