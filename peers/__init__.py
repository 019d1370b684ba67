"""Real peers beside everturn: `make peers`, outside CI. It writes docs/works-with.md.

A part is a module of this folder with

- a docstring, whose first line is the part's title on the page;
- `MINUTES`, its time limit;
- `async def run(bench)`, which installs peers and writes rows: see `peers/bench.py`.

Each part runs in a process of its own, in an empty folder that is removed afterwards. Whatever it starts is ended with
it. Rows that were written before a part ran out of time stay.
"""
