"""Answers of production, judged: decision 0057. What users write with is in everturn.evals."""
