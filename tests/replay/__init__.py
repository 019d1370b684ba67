from pathlib import Path

HISTORIES = Path(__file__).parent / "histories"
