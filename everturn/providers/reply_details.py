"""What a provider says about a reply as a whole: the model that answered, the tier, why it was filtered."""

from __future__ import annotations

from typing import Any, Final

from everturn.models import Model
from everturn.providers.json_values import a_str, mend_texts

MODEL: Final = "model"
SERVICE_TIER: Final = "service_tier"
MAX_CHANGES: Final = 20
"""So many of the changes that a provider made in its input are said: a dropped thought is one, in each turn again."""


def details_of(model: Model, *, served_by: object, tier: object, **others: Any) -> dict[str, Any]:
    """`model` if it differs from the one asked for (a dated version, a fallback), `service_tier`, and whatever else is
    said, under the provider's own names. Empty values are left out: each field costs history bytes."""
    name = a_str(served_by).removeprefix("models/")
    if name == model.model.removeprefix("models/"):
        name = ""
    details = {MODEL: name, SERVICE_TIER: a_str(tier), **others}
    kept: dict[str, Any] = mend_texts(
        {name: value for name, value in details.items() if value not in (None, "", [], {})}
    )
    return kept
