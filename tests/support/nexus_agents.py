"""An agent whose tool is a Nexus operation, for workers that are killed."""

from __future__ import annotations

import os

from everturn import Agent, nexus_tool
from tests.support.nexus_shop import Shop

ship = nexus_tool(Shop.ship, endpoint=os.environ["SHOP_ENDPOINT"], service=Shop)
clerk = Agent("clerk", model="scripted:demo", tools=[ship])
