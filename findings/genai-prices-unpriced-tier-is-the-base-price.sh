#!/usr/bin/env bash
# GENAI-PRICES TAKES A SERVICE TIER THAT IT HAS NO PRICE FOR: it answers with the standard price, and nothing tells.
#
# Software:  genai-prices 0.2.3 (PyPI)
# Expected:  calc_price(price_context={"service_tier": "flex"}) fails, warns or gives no price where the list has no flex
#            price for the model, since the caller said what was billed
# Seen:      half the price for gemini-3.8-flash-tts, the standard price for gemini-3.8-flash (which Google bills at half),
#            and the standard price for a tier that does not exist, or that is written as Google's API writes it ("FLEX")
# It matters to: who prices replies by the tier that served them: compare with the price without the context first
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "genai-prices==0.2.3" || exit 2
"$folder/venv/bin/python" -W error - <<'PY'
from genai_prices import Usage, calc_price


def times(model: str, tier: str) -> float:
    used = Usage(input_tokens=1_000_000, output_tokens=100_000)
    base = calc_price(used, model, provider_id="google").total_price
    return float(calc_price(used, model, provider_id="google", price_context={"service_tier": tier}).total_price / base)


seen = {
    "gemini-3.8-flash-tts, flex": times("gemini-3.8-flash-tts", "flex"),
    "gemini-3.8-flash-tts, FLEX": times("gemini-3.8-flash-tts", "FLEX"),
    "gemini-3.8-flash, flex": times("gemini-3.8-flash", "flex"),
    "gemini-3.8-flash, no-such-tier": times("gemini-3.8-flash", "no-such-tier"),
}
print(seen)
assert list(seen.values()) == [0.5, 1.0, 1.0, 1.0], f"it has changed: {seen!r}"
PY
# Output of 2026-11-27:
# {'gemini-3.8-flash-tts, flex': 0.5, 'gemini-3.8-flash-tts, FLEX': 1.0, 'gemini-3.8-flash, flex': 1.0, ...}
