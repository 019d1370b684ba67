"""Bugs that everturn once had, each as a patch against today's code: whatever tests it has to find them again.

A file is called as its bug in words, and begins with what it was, which commit mended it, how it is seen, and which
workflow test finds it. `python -m tests.simulation.mutants` (`make mutants`) counts how many the simulation finds.
"""
