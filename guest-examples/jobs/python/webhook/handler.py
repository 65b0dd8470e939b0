"""Checks the signature of a webhook, and passes it on once."""

import hashlib
import hmac
import json
import time

from hostler_handler import Drop, Message, handler, key_value, publish, secrets


@handler
def verify(message: Message):
    stamp, _, given = (message.header("x-signature") or "").partition(",")
    signed = stamp.encode() + b"." + message.body
    right = hmac.new(secrets.get("webhook").encode(), signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(given, right):
        raise Drop("the signature is wrong")
    # A copy that waited in the queue is still good: its enqueued time counts, not the present one.
    if abs(int(stamp) - (message.enqueued_ms / 1000 or time.time())) > 300:
        raise Drop("the signature is older than 5 minutes")
    event = json.loads(message.body)
    if key_value.get(f"seen:{event['id']}"):
        return
    key_value.set(f"seen:{event['id']}", "1", ttl=86_400)
    publish("events", event)
