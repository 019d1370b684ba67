"""Three tasks, each as a user's program, for everturn and for pydantic-ai: see benchmarks/learning.py."""
