"""Providers that other packages add, by the entry points of the group `everturn.providers`.

An entry point's name is what stands before a model's colon, and it names a `Row` of `everturn.providers`. Which names
there are is read from the installed packages' metadata, once, as soon as a name comes up that is not one of ours; a
package's code is imported when its provider is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from everturn.errors import InvalidModel
from everturn.models import PROVIDERS, Model, unknown_provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "everturn.providers"


def check_provider(model: Model) -> Model:
    """The model, if there is such a provider, ours or a package's. Raises InvalidModel, with the nearest one."""
    if model.provider not in PROVIDERS and model.provider not in points_by_name():
        raise unknown_provider(model.provider, known=known_names())
    return model


def known_names() -> tuple[str, ...]:
    """What may be before a model's colon, in this process."""
    return (*PROVIDERS, *points_by_name())


@cache
def points_by_name() -> Mapping[str, tuple[EntryPoint, ...]]:
    """What packages add, by its name; more than one if several packages add the same. Our own names can't be taken."""
    from importlib.metadata import entry_points

    from everturn.logs import get_logger

    log = get_logger("everturn.providers")
    by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        if point.name in PROVIDERS or not point.name or ":" in point.name:
            log.warning("provider.left_out", provider=point.name, package=package_of(point), reason="its name is taken")
        elif point not in by_name.get(point.name, ()):
            by_name[point.name] = (*by_name.get(point.name, ()), point)
    return by_name


@cache
def load_row(name: str) -> Any:
    """The Row that a package adds under this name; None if none adds it. Raises InvalidModel if it can't be imported,
    is no Row, or if several packages add it."""
    points = points_by_name().get(name, ())
    if not points:
        return None
    if len(points) > 1:
        raise InvalidModel(
            f"Several packages add a provider {name!r}: {', '.join(map(package_of, points))}.",
            cure="Uninstall all but one of them.",
        )
    try:
        added = points[0].load()
    except (Exception, SystemExit) as error:  # a package that ends the process would end the worker
        package = package_of(points[0])
        problem = f"{type(error).__name__}: {error!s:.300}"
        raise InvalidModel(
            f"The provider {name!r} of {package} can't be loaded: {problem}.",
            cure=f"Install {package} again, in a version that fits this everturn.",
        ) from error
    if not (hasattr(added, "protocol") and hasattr(added, "models")):
        raise InvalidModel(
            f"The provider {name!r} of {package_of(points[0])} is {added!r:.200}, not a Row.",
            cure="Its entry point has to name a Row of everturn.providers: see docs/howto/add-a-provider.md.",
        )
    return added


def package_of(point: EntryPoint) -> str:
    """The package that has the entry point, such as `everturn-acme 1.0`."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def forget_plugins() -> None:
    """Looks again the next time: packages were installed or removed."""
    points_by_name.cache_clear()
    load_row.cache_clear()
