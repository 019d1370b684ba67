"""Plays the model of coding_agent.py."""

from everturn.testing import call

script = [
    [call("list_files"), call("run_tests")],
    call("read_file", {"path": "calculator.py"}),
    call("write_file", {"path": "calculator.py", "text": "def add(a, b):\n    return a + b\n"}),
    call("run_tests"),
    call("commit", {"message": "add() adds"}),
    "add() subtracted. It adds now, the tests pass, and it is committed.",
]
