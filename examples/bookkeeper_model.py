"""Plays the bookkeeper's model where there is no key: it reads what the tools said, and decides what comes next.

    python -m everturn.testing examples/bookkeeper_model.py

serves it like any other Chat Completions server, and prints the address for SCRIPTED_BASE_URL.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from everturn.testing import Reply, call, say, slow

PAY_UNTIL = "2026-10-10"
THINKING_SECONDS = 0.4


@dataclass
class Invoice:
    number: str
    supplier: str
    due: str
    iban: str
    sum: int
    """What its lines come to, in cents."""
    total: int
    """What it says that they come to."""


def script(messages: list[dict[str, Any]]) -> Reply:
    """The next reply: whatever has not been called yet."""
    return slow(_next(_results(messages)), seconds=THINKING_SECONDS)


def _next(results: dict[str, list[str]]) -> Any:
    if "list_files" not in results:
        return [say("I start with a look into the folder."), call("list_files")]
    if "read_file" not in results:
        names = [name for name in json.loads(results["list_files"][0]) if name.endswith(".txt")]
        return [say(f"{len(names)} invoices. I read them all."), *(call("read_file", {"name": name}) for name in names)]
    invoices = [_read(text) for text in results["read_file"]]
    right = [invoice for invoice in invoices if invoice.sum == invoice.total]
    wrong = [invoice for invoice in invoices if invoice.sum != invoice.total]
    if "book" not in results:
        return [say(f"{len(right)} add up, {len(wrong)} does not. I book those that do."), *map(_book, right)]
    if "write_report" not in results:
        return call("write_report", {"markdown": _report(right, wrong)})
    due = [invoice for invoice in right if invoice.due <= PAY_UNTIL]
    if "pay" not in results:
        return [say(f"{len(due)} is due by {PAY_UNTIL}."), *map(_pay, due)]
    return say(_closing(right, wrong, results["pay"]))


def _results(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    """By tool: what its calls came back with."""
    tool_of = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    results: dict[str, list[str]] = {}
    for message in messages:
        if message["role"] == "tool":
            results.setdefault(tool_of[message["tool_call_id"]], []).append(message["content"])
    return results


def _read(text: str) -> Invoice:
    amounts = [_cents(amount) for amount in re.findall(r"^ *\d+  .* ([\d.]+)$", text, re.M)]
    return Invoice(
        number=_field(text, "INVOICE"),
        supplier=_field(text, "From"),
        due=_field(text, "Due"),
        iban=_field(text, "IBAN").replace(" ", ""),
        sum=sum(amounts),
        total=_cents(_field(text, "TOTAL EUR")),
    )


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{name} +(.+)$", text, re.M)
    return match[1].strip() if match else ""


def _cents(amount: str) -> int:
    return int(amount.replace(".", ""))


def _euros(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def _book(invoice: Invoice) -> Any:
    return call("book", {"invoice": invoice.number, "supplier": invoice.supplier, "cents": invoice.total})


def _pay(invoice: Invoice) -> Any:
    return call("pay", {"invoice": invoice.number, "iban": invoice.iban, "cents": invoice.total})


def _report(right: list[Invoice], wrong: list[Invoice]) -> str:
    lines = ["# Books, October 2026", "", "| invoice | supplier | EUR |", "|---|---|---:|"]
    lines += [f"| {invoice.number} | {invoice.supplier} | {_euros(invoice.total)} |" for invoice in right]
    lines += [f"| **all** | | **{_euros(sum(invoice.total for invoice in right))}** |", ""]
    lines += [
        f"{invoice.number} ({invoice.supplier}) does not add up: its lines come to {_euros(invoice.sum)}, "
        f"its total says {_euros(invoice.total)}. Not booked."
        for invoice in wrong
    ]
    return "\n".join(lines) + "\n"


def _closing(right: list[Invoice], wrong: list[Invoice], payments: list[str]) -> str:
    booked = f"I booked {len(right)} invoices, {_euros(sum(invoice.total for invoice in right))} EUR in all"
    paid = sum("Paid: " in payment for payment in payments)
    unpaid = ", ".join(invoice.number for invoice in wrong)
    return f"{booked}, and paid {paid} of them. {unpaid} does not add up: please ask the supplier; report.md says why."
