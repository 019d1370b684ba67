"""Writes what the docstrings say into the reference pages, between `<!-- reference: NAMES -->` and `<!-- end -->`.

    .venv/bin/python docs/make_reference.py

The pages are checked in, so that they read well wherever they are read. A test checks that they are up to date.
NAMES are public names of `everturn`, dotted paths (`everturn.agent_settings.Compaction`), or `errors` and `events`
for all of theirs. The docstrings are read from the source, without importing it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import griffe

import everturn
from everturn import sizes

DOCS = Path(__file__).parent
PAGES = sorted((DOCS / "reference").rglob("*.md"))
REGION = re.compile(r"(<!-- reference: (.+?) -->\n).*?(<!-- end -->)", re.S)
HEADING = re.compile(r"^#(#+ (\S+))$", re.M)
WIDTH = 100
LONGEST_LINE = 120
INNER = {
    "Agent.activity_prefix",
    "Agent.for_turn",
    "Agent.handoff",
    "Agent.named",
    "Agent.read_output",
    "Agent.typed_output",
    "Agent.with_activity_prefix",
    "Agent.with_hooks",
    "Agent.with_tools",
    "Client.indexed",
    "Client.unreachable_error",
    "Condition.holds",
    "Conversation.by_history",
    "Conversation.standing",
    "Decision.is_told",
    "Encryption.decode",
    "Encryption.of_settings",
    "EverturnPlugin.name",
    "HandOff.as_tool",
    "Limits.calls_left",
    "Limits.merged",
    "Limits.used_up",
    "McpServer.all_auth",
    "McpServer.all_headers",
    "McpServer.environment",
    "McpServer.label",
    "McpServer.place",
    "Rule.applies",
    "Tool.attaches",
    "Tool.bounded",
    "Tool.checked",
    "Tool.context_parameters",
    "Tool.inputs",
    "Tool.is_function",
    "Tool.module",
    "Tool.needs_decision",
    "Tool.provider_tool",
    "Tool.run",
    "ToolOptions.known_to",
    "ToolOptions.of",
    "ToolResult.cut_short",
    "Usage.since",
    "WaitingCall.as_json",
}
"""Public for other modules of everturn, and of no use to anybody else."""

_source = griffe.load("everturn", search_paths=[DOCS.parent])


def written(page: str) -> str:
    """The page with its regions filled in. Raises KeyError for a name that is not there."""
    title = page.partition("\n")[0].removeprefix("# ")
    return REGION.sub(lambda found: f"{found[1]}\n{_at_level(_region(found[2]), title)}\n\n{found[3]}", page)


def _at_level(described: Iterator[str], title: str) -> str:
    """Names are headings right below the page's title; what the whole page is about has that alone."""
    parts = [HEADING.sub(r"\1", part) if part.startswith("#") else part for part in described]
    return "\n\n".join(part for part in parts if part != f"## {title}")


def _region(wanted: str) -> Iterator[str]:
    for name in wanted.split():
        if name == "errors":
            tree = inspect.cleandoc(_source["errors"].docstring.value).partition("\n\n")[2]
            yield f"```text\n{tree}\n```"
        elif name == "events":
            yield from _table(("kind", "class", "fields", "what"), map(_event, _events()))
        elif (module := _source.modules.get(name.removeprefix("everturn."))) is not None:
            for public in module.exports or ():
                yield from _described(_resolved(f"{module.name}.{public}"), title=f"{module.name}.{public}")
        else:
            home = everturn._HOMES.get(name)
            path = f"{home}.{name}" if home else name.removeprefix("everturn.")
            yield from _described(_resolved(path), title=name.removeprefix("everturn."))


def _resolved(path: str) -> griffe.Object:
    found = _source[path]
    return found.final_target if isinstance(found, griffe.Alias) else found


def _described(one: griffe.Object, *, title: str) -> Iterator[str]:
    yield f"### {title}"
    if isinstance(one, griffe.Class):
        yield from _class(one, title)
    elif isinstance(one, griffe.Function):
        yield "\n".join(["```py", *(_signature(way, title) for way in one.overloads or [one]), "```"])
        yield _text(one)
    else:
        assert isinstance(one, griffe.Attribute)
        if "\\n" in str(one.value):
            yield f"```text\n{ast.literal_eval(str(one.value)).strip()}\n```"
        else:
            yield f"```py\n{_assigned(f'{one.name} = {_value(one.value, one)}')}\n```"
        yield _text(one)


def _assigned(line: str) -> str:
    """As ruff writes it, which formats these pages too."""
    if len(line) <= LONGEST_LINE:
        return line
    opened, _, rest = line.partition("[")
    inside = rest.removesuffix("]")
    if len(inside) + 4 > LONGEST_LINE:
        inside = inside.replace(", ", ",\n    ") + ","
    return f"{opened}[\n    {inside}\n]"


def _class(one: griffe.Class, title: str) -> Iterator[str]:
    init = one.members.get("__init__")
    called = isinstance(init, griffe.Function) and bool(init.lineno) and not _is_error(one)
    if called:
        yield f"```py\n{_signature(init, title)}\n```"
    yield _text(one)
    attributes = [member for member in _public(one) if isinstance(member, griffe.Attribute)]
    fields = [member for member in attributes if "property" not in member.labels and (member.docstring or not called)]
    if called:
        yield from _table(("field", "type", "what"), [(f"`{it.name}`", _type(it), _line(it)) for it in fields])
    else:
        rows = [(f"`{it.name}`", _type(it), _default(it), _line(it)) for it in fields]
        yield from _table(("field", "type", "default", "what"), rows)
    properties = [member for member in attributes if "property" in member.labels]
    yield from _table(("property", "type", "what"), [(f"`{it.name}`", _type(it), _line(it)) for it in properties])
    for member in _public(one):
        if isinstance(member, griffe.Function) and member.docstring:
            yield f"#### {title}.{member.name}"
            yield f"```py\n{_signature(member, member.name)}\n```"
            yield _text(member)


def _public(one: griffe.Class) -> list[griffe.Object]:
    members = [member for member in one.members.values() if isinstance(member, griffe.Object)]
    hidden = {"model_config", *(path.partition(".")[2] for path in INNER if path.startswith(f"{one.name}."))}
    return [member for member in members if not member.name.startswith("_") and member.name not in hidden]


def _is_error(one: griffe.Class) -> bool:
    return one.module.name == "errors"


def _events() -> list[griffe.Class]:
    named = re.findall(r"\b[A-Z]\w+", str(_source["events"]["Event"].value))
    members = _source["events"].members
    return [one for name in named if isinstance(one := members.get(name), griffe.Class)]


def _event(one: griffe.Class) -> tuple[str, ...]:
    fields = [member for member in _public(one) if isinstance(member, griffe.Attribute)]
    kind = next(member for member in fields if member.name == "kind")
    told = [_line(one), *(f"`{field.name}`: {_line(field)}" for field in fields if field.docstring)]
    names = ", ".join(field.name for field in fields if field is not kind)
    return f"`{str(kind.value).strip(chr(39))}`", one.name, names, " ".join(filter(None, told))


# ---------------------------------------------------------------- pieces


def _signature(one: griffe.Function, title: str) -> str:
    shown: list[str] = []
    kind = None
    for parameter in one.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if kind is griffe.ParameterKind.positional_only and parameter.kind is not kind:
            shown.append("/")
        if parameter.kind is griffe.ParameterKind.keyword_only and kind is not parameter.kind:
            shown.append("*")
        kind = parameter.kind
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(kind, "")
        annotation = f": {_value(parameter.annotation, one)}" if parameter.annotation else ""
        default = f" = {_value(parameter.default, one)}" if parameter.default is not None and not stars else ""
        shown.append(f"{stars}{parameter.name}{annotation}{default if annotation else default.replace(' ', '')}")
    if kind is griffe.ParameterKind.positional_only:
        shown.append("/")
    before = "async " if "async" in one.labels and "AsyncIterator" not in str(one.returns) else ""
    after = f" -> {one.returns}" if one.returns and one.name != "__init__" else ""
    line = f"{before}{title}({', '.join(shown)}){after}"
    if len(line) > WIDTH:
        line = f"{before}{title}(\n" + "".join(f"    {item},\n" for item in shown) + f"){after}"
    return line


def _text(one: griffe.Object) -> str:
    return inspect.cleandoc(one.docstring.value) if one.docstring else ""


def _line(one: griffe.Object) -> str:
    return " ".join(_text(one).split()).replace("|", "&#124;")


def _type(one: griffe.Object) -> str:
    assert isinstance(one, griffe.Attribute)
    text = str(one.annotation or "")
    text = re.sub(r"Literal\[(.+?)\]", lambda found: found[1].replace(", ", " or "), text)
    return f"`{text.replace(' | ', ' or ').replace(chr(39), chr(34))}`" if text else ""


def _default(one: griffe.Object) -> str:
    assert isinstance(one, griffe.Attribute)
    text = _value(one.value or "", one)
    if found := re.fullmatch(r"(?:Field|field)\((.*)\)", text):
        given = re.match(r"default=([^,]*)", found[1])
        text = given[1] if given else "empty" if re.match("default_factory=(dict|list|tuple)", found[1]) else ""
    return f"`{text}`" if text else ""


def _value(value: object, place: griffe.Object) -> str:
    """A default as a reader can use it: constants by their values, nothing private, double quotes."""

    def constant(found: re.Match[str]) -> str:
        if hasattr(sizes, found[2]):  # made by arithmetic
            return str(getattr(sizes, found[2]))
        module = _source["names"] if found[1] else place.module
        named = module.members.get(found[2])
        return str(named.value) if isinstance(named, griffe.Attribute) else found[0]

    text = re.sub(r"\b(names\.)?([A-Z][A-Z_]{3,})\b", constant, str(value))
    text = re.sub(r"\b_\w+", "...", text)
    return text if '"' in text else text.replace("'", '"')


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> Iterator[str]:
    """A table without the columns that no row fills."""
    table = [head, *rows]
    filled = [index for index, column in enumerate(zip(*table, strict=True)) if any(column[1:])]
    lines = [f"| {' | '.join(row[index] for index in filled)} |" for row in table]
    if len(lines) > 1:
        yield "\n".join([lines[0], "|---" * len(filled) + "|", *lines[1:]])


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text()))
