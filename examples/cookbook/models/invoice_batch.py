"""Plays the model of invoice_batch.py: it reads what stands in the text."""

import json
import re
from typing import Any


def script(messages: list[dict[str, Any]]) -> Any:
    text = messages[-1]["content"]
    [number] = re.findall(r"INVOICE (\S+)", text)
    [supplier] = re.findall(r"From +(.+)", text)
    [total] = re.findall(r"TOTAL EUR +([\d.,]+)", text)
    return json.dumps({"number": number, "supplier": supplier, "cents": int(re.sub(r"\D", "", total))})
