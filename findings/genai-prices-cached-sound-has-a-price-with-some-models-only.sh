#!/usr/bin/env bash
# GENAI-PRICES REFUSES A USAGE FOR ONE MODEL AND PRICES IT FOR ANOTHER: cached tokens beside tokens of sound.
#
# Software:  genai-prices 0.2.3 (PyPI)
# Expected:  a usage is complete or not, whatever the model is
# Seen:      with cache_read_tokens and input_audio_tokens, calc_price raises ValueError for gemini-2.5-flash, which has a
#            price for cached sound, until cache_audio_read_tokens is given too, even as 0; for gemini-3.5-flash, which has
#            none, it gives a price
# It matters to: who catches its errors as "no price", or tries again with fewer counts: sound is then priced as text.
#            Gemini counts cached sound in cacheTokensDetails; where nothing is said, give 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "genai-prices==0.2.3" || exit 2
"$folder/venv/bin/python" -W error - <<'PY'
from genai_prices import Usage, calc_price


def price(model: str, **more: int) -> str:
    used = Usage(input_tokens=100_000, cache_read_tokens=90_000, input_audio_tokens=8_000, output_tokens=0, **more)
    try:
        return str(calc_price(used, model, provider_id="google").total_price)
    except ValueError:
        return "ValueError"


seen = [
    price("gemini-2.5-flash"),
    price("gemini-2.5-flash", cache_audio_read_tokens=0),
    price("gemini-2.5-flash", cache_audio_read_tokens=8_000),
    price("gemini-3.5-flash"),
]
print(seen)
assert seen == ["ValueError", "0.0113", "0.00626", "0.0285"], f"it has changed: {seen!r}"
PY
# Output of 2026-11-29:
# ['ValueError', '0.0113', '0.00626', '0.0285']
