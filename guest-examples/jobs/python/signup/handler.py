"""Signs a customer up: creates the account, waits until the trial ends, sends a mail, and publishes.

hostler records each step that is done, so no retry repeats it.
"""

import json
import time
import urllib.request
from dataclasses import dataclass

from hostler_handler import handler, hold, publish, recall, remember


@dataclass
class SignUp:
    email: str
    trial_seconds: int


@handler
def sign_up(order: SignUp):
    account = recall("account")
    if account is None:
        created = post("https://accounts.example.com/accounts", {"email": order.email})
        account = {"id": created["id"], "trial_ends": time.time() + order.trial_seconds}
        remember("account", account)
    if (left := account["trial_ends"] - time.time()) > 0:
        raise hold(left)
    post("https://mail.example.com/messages", {"to": order.email, "template": "trial-ended"})
    publish("accounts", {"account": account["id"], "trial": "ended"})


def post(url: str, body: object):
    content = json.dumps(body, separators=(",", ":")).encode()
    request = urllib.request.Request(url, content, {"content-type": "application/json"})
    # Any other status than 2xx is an error: the message comes again.
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
