"""Calls that wait for an approval, in a Slack channel: two buttons each, and the message says what was decided."""

import asyncio
import hashlib
import hmac
import json
import os
import re
import time
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.routing import Route

from everturn import Client, EverturnError

TOKEN = os.environ.get("SLACK_BOT_TOKEN", "")  # xoxb-...
SECRET = os.environ.get("SLACK_SIGNING_SECRET", "")
CHANNEL = os.environ.get("SLACK_CHANNEL", "#approvals")
API = os.environ.get("SLACK_API", "https://slack.com/api")

LOOK_EVERY_SECONDS = 5
MAX_VALUE_CHARS = 2000  # of a button, says Slack
MAX_TEXT_CHARS = 3000  # of a section, says Slack
MAX_BODY_BYTES = 1_000_000


async def ask_for_all(client, slack, messages):
    """Posts each call that waits for an approval, once; takes the buttons away if it was decided elsewhere."""
    while True:
        try:
            ids = [conversation.id async for conversation in client.conversations(status="awaiting_approval")]
            waiting = await asyncio.gather(*(ask_for(client.conversation(each), slack, messages) for each in ids))
            for question in messages.keys() - set().union(*waiting):
                if place := messages.get(question):  # a button may have been pressed meanwhile
                    await post(slack, "chat.update", {**place, "text": "Decided elsewhere.", "blocks": []})
                    messages.pop(question, None)
        except Exception as error:  # whatever it is, the next look may be better
            print(f"asks again: {error!r}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)


async def ask_for(conversation, slack, messages):
    """What this conversation asks. If it can't be read now, or Slack refuses it, the others are asked all the same."""
    questions = {question for question in messages if question[0] == conversation.id}
    try:
        waiting = (await conversation.status()).waiting
        questions = {(conversation.id, call.call_id, call.since, call.reason) for call in waiting}
        for call in waiting:
            question = (conversation.id, call.call_id, call.since, call.reason)
            if call.needs == "approval" and question not in messages:
                messages[question] = await ask(slack, conversation.id, call)
    except Exception as error:  # whatever it is, the others are asked all the same
        print(f"asks again: {error!r}")
    return questions


async def ask(slack, conversation_id, call):
    # The arguments travel with the button: a decision holds for what the person saw, and for nothing else.
    value = {"id": conversation_id, "call_id": call.call_id, "since": call.since, "arguments": call.arguments}
    value = json.dumps(value)
    again = call.reason == "outcome_unknown"  # it may have run already
    arguments = json.dumps(call.arguments, indent=2).replace("`", "\\u0060")  # a ` would end the block
    text = f"*{plain(call.why)}* in `{plain(conversation_id)}`\n```{plain(arguments)}```"
    buttons = {"type": "actions", "elements": [button("approve", value, again), button("deny", value)]}
    if too_large := len(value) > MAX_VALUE_CHARS or len(text) > MAX_TEXT_CHARS:  # nobody decides on what is cut
        text = f"{text[:2500]} ...```\nToo large to decide here: `everturn show {plain(conversation_id)}`"
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": text}}, *([] if too_large else [buttons])]
    posted = await post(slack, "chat.postMessage", {"channel": CHANNEL, "text": plain(call.why), "blocks": blocks})
    return {"channel": posted["channel"], "ts": posted["ts"]}  # by which Slack knows the message


def plain(text):
    """No mention or link, whatever the model wrote."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


async def post(slack, method, message):
    answer = (await slack.post(f"{API}/{method}", json=message)).raise_for_status().json()
    if not answer["ok"]:
        raise httpx.HTTPError(f"Slack refused {method}: {answer['error']}")
    return answer


def button(verdict, value, again=False):
    style = "primary" if verdict == "approve" else "danger"
    label = {"type": "plain_text", "text": "Run it again" if again else verdict.capitalize()}
    return {"type": "button", "action_id": verdict, "text": label, "style": style, "value": value}


async def on_button(request):
    """Slack posts here. It wants its 200 within three seconds, so the decision is taken after that."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return Response(status_code=413)
    if not from_slack(request.headers, body):
        return Response(status_code=401)
    clicked = json.loads(parse_qs(body.decode())["payload"][0])
    return Response(background=BackgroundTask(decide, request.app.state, clicked))


def from_slack(headers, body):
    sent_at = headers.get("x-slack-request-timestamp", "")
    if not re.fullmatch("[0-9]{1,12}", sent_at) or abs(time.time() - int(sent_at)) > 300:
        return False  # an old request, which somebody has sent again
    signed = b"v0:" + sent_at.encode() + b":" + body
    expected = "v0=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), headers.get("x-slack-signature", "").encode())


async def decide(state, clicked):
    action = clicked["actions"][0]
    pressed = json.loads(action["value"])
    person = f"slack:{clicked['user']['id']}"
    conversation = Client(state.client.temporal, by=person).conversation(pressed["id"])
    try:
        if await is_asked_again(conversation, pressed):
            done = "It is asked again since, in a newer message."  # its first run may have come to nothing, or not
        elif action["action_id"] == "approve":
            await conversation.approve(pressed["call_id"], expected=pressed["arguments"])
            done = f"Approved by {person}."
        else:
            await conversation.deny(pressed["call_id"], reason="denied in Slack")
            done = f"Denied by {person}."
    except EverturnError as error:
        done = str(error)  # Call 'c1' was already decided: approve by ann at ...
    for question in [question for question in state.messages if question[:2] == (pressed["id"], pressed["call_id"])]:
        del state.messages[question]
    await state.slack.post(clicked["response_url"], json={"replace_original": True, "text": done})


async def is_asked_again(conversation, pressed):
    waiting = (await conversation.status()).waiting
    return any(call.call_id == pressed["call_id"] and call.since != pressed["since"] for call in waiting)


@asynccontextmanager
async def lifespan(app):
    if not (TOKEN and SECRET):  # without a secret, anybody could sign
        raise ValueError("Set SLACK_BOT_TOKEN and SLACK_SIGNING_SECRET.")
    app.state.client = await Client.connect()
    app.state.messages = {}  # the questions that have a message, and where it is
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as app.state.slack:
        asking = asyncio.create_task(ask_for_all(app.state.client, app.state.slack, app.state.messages))
        yield
        asking.cancel()


app = Starlette(routes=[Route("/slack", on_button, methods=["POST"])], lifespan=lifespan)
