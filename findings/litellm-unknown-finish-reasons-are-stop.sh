#!/usr/bin/env bash
# LITELLM MAKES "stop" OF A REPLY THAT BROKE OFF: "error", "network_error", MALFORMED_FUNCTION_CALL and every reason that it
# does not know, in lower or upper case, come out as finish_reason "stop".
#
# Software:  litellm 1.108.7 (PyPI)
# Expected:  an error, or the reason as it came: "stop" says that the model was done
# Seen:      "stop" for all of them; "max_tokens" is "length", "MAX_TOKENS" too, but "Max_Tokens" is "stop"
# It matters to: agents behind the proxy: half a sentence or a leaked call counts as the answer. The reason as it came is
#            in choices[0].provider_specific_fields.native_finish_reason: read that, too
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "litellm==1.108.7" || exit 2
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" - <<'PY'
from litellm.litellm_core_utils.core_helpers import map_finish_reason
from litellm.types.utils import Choices
reasons = ["error", "network_error", "MALFORMED_FUNCTION_CALL", "overloaded_error", "upstream_timeout", "Max_Tokens"]
seen = {reason: map_finish_reason(reason) for reason in reasons}
print(seen)
assert set(seen.values()) == {"stop"}, f"it has changed: {seen}"
choice = Choices(finish_reason="MALFORMED_FUNCTION_CALL")
print(choice.finish_reason, choice.provider_specific_fields)
assert choice.finish_reason == "stop"
assert choice.provider_specific_fields["native_finish_reason"] == "MALFORMED_FUNCTION_CALL", choice.provider_specific_fields
PY
# Output of 2026-11-27:
# {'error': 'stop', 'network_error': 'stop', 'MALFORMED_FUNCTION_CALL': 'stop', 'overloaded_error': 'stop', 'upstream_timeout': 'stop', 'Max_Tokens': 'stop'}
# stop {'native_finish_reason': 'MALFORMED_FUNCTION_CALL'}
