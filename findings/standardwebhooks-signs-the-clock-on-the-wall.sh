#!/usr/bin/env bash
# ONE MOMENT, TWO SIGNATURES: Webhook.sign() of Standard Webhooks' own Python library signs the hours and minutes that a datetime
# shows, as if they were UTC's, and passes over its time zone. A message signed with datetime.now(some zone) is refused by the
# library's own verify(), and by every other receiver.
#
# Software:  standardwebhooks 1.1.0 (PyPI)
# Expected:  an aware datetime is a moment: 12:00 in Berlin and 10:00 UTC are signed alike, as Date objects are by its
#            JavaScript twin; a naive one, if taken at all, is the local time, as datetime.timestamp() has it
# Seen:      three spellings of one moment, two signatures; verify() takes that of UTC alone
# It matters to: who sends webhooks with this library from code whose datetimes are local: all receivers refuse them, and
#            nothing says why ("No matching signature found"). Give it datetime.now(timezone.utc)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "standardwebhooks==1.1.0" || exit 2
timeout 60 env TZ=Etc/GMT-2 "$folder/venv/bin/python" - <<'PY'
import base64
from datetime import datetime, timedelta, timezone
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

webhook = Webhook("whsec_" + base64.b64encode(b"a secret of thirty-two bytes ...").decode())
body = '{"type":"order.paid"}'
moment = datetime.now(timezone.utc)
spellings = {
    "in UTC": moment,
    "two hours east": moment.astimezone(timezone(timedelta(hours=2))),
    "local, naive": moment.astimezone().replace(tzinfo=None),
}
seen = {}
signatures = set()
for name, spelled in spellings.items():
    assert spelled.timestamp() == moment.timestamp()
    signature = webhook.sign("msg_1", spelled, body)
    signatures.add(signature)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(moment.timestamp())), "webhook-signature": signature}
    try:
        webhook.verify(body, headers)
        seen[name] = "taken"
    except WebhookVerificationError as error:
        seen[name] = str(error)
seen["signatures"] = len(signatures)
print(seen)
refused = "No matching signature found"
assert seen == {"in UTC": "taken", "two hours east": refused, "local, naive": refused, "signatures": 2}, "it has changed"
PY
# Output of 2026-11-28:
# {'in UTC': 'taken', 'two hours east': 'No matching signature found', 'local, naive': 'No matching signature found', 'signatures': 2}
