"""Short programs that connect and end, run again and again: none may be killed at its end. `make exits`."""
