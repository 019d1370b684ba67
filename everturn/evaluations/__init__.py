"""Answers of production, judged: decision 0058. What users write with is in everturn.evals."""
