"""How far a 429 lowers the rate, and what counts as measured by then."""

from __future__ import annotations

from typing import Final

MARGIN: Final = 0.9
MARGIN_SHARED: Final = 0.7
"""The share of the accepted calls, alone and shared, to start from: the provider's bucket was full at first."""
CUT: Final = 0.15
LEAST_CUT_AT_FIRST: Final = 0.3
MOST_CUT_AT_FIRST: Final = 0.6
MOST_CUT: Final = 0.4
MEASURED_SECONDS: Final = 25.0
FAR_ABOVE: Final = 4.0
"""If most calls are refused, a rate so many times what was accepted is no measure to cut from."""
MANY_REFUSALS: Final = 3
MANY_CUT: Final = 0.3
"""So many 429s, with hardly an accepted call between them: the rate of workers that share a limit is far too high."""
FEW_AT_FIRST: Final = 4
FEW_CALLS: Final = 5
"""Fewer accepted calls than this do not show a rate."""
