"""`python -I -S tests/support/through_a_door.py DOOR ARGUMENTS`: what `python ARGUMENTS` does, with the streams, the
folder and the environment of this process, but in one that forks.py forks. It ends as that does; that ends with it."""

import json
import os
import signal
import socket
import sys

NUMBER_BYTES = 4

if __name__ == "__main__":
    asked = {"folder": os.getcwd(), "environment": dict(os.environ), "arguments": sys.argv[2:]}  # noqa: PTH109 - slow
    message = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(sys.argv[1])
        socket.send_fds(door, [len(message).to_bytes(NUMBER_BYTES)], [0, 1, 2])
        door.sendall(message)
        for stream in (0, 1):  # whoever is at their other ends sees when the program closes them
            os.close(stream)
        status = door.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    exit_code = os.waitstatus_to_exitcode(int.from_bytes(status))
    if exit_code < 0:
        if exit_code != -signal.SIGKILL:
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    sys.exit(exit_code)
