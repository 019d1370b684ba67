from pathlib import Path

HISTORIES = Path(__file__).parent / "histories"

EXPECTED = Path(__file__).parent / "expected"
"""The commands that each of them is answered with."""
