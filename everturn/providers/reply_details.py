"""What a provider says about a reply as a whole: the model that answered, the tier, why it was filtered."""

from __future__ import annotations

from typing import Any, Final

from everturn.models import Model
from everturn.providers.json_values import a_str, mended

MODEL: Final = "model"
SERVICE_TIER: Final = "service_tier"


def details_of(model: Model, *, served_by: object, tier: object, **said: Any) -> dict[str, Any]:
    """`model` if it differs from the one asked for (a dated version, a fallback), `service_tier`, and whatever else is
    `said`, under the provider's own names. Empty values are left out: each field costs history bytes."""
    name = a_str(served_by).removeprefix("models/")
    if name == model.model.removeprefix("models/"):
        name = ""
    found = {MODEL: name, SERVICE_TIER: a_str(tier), **said}
    kept: dict[str, Any] = mended({name: value for name, value in found.items() if value not in (None, "", [], {})})
    return kept
