#!/usr/bin/env python3
"""Serves a queue with the job `webhook` of guest-examples/jobs: effects, retries, dead letters and causes.

    tests/libraries/queue.py HOSTLER HANDLER.wasm SECRET=FILE (plain | stamped | github) CAUSE

FILE has the key of the signatures, which are of the body, of a time and the body, or of the body as GitHub writes them. SECRET is its
name in the handler.
An event that is `null` fails, and its cause has the text CAUSE. `redis-server` or `valkey-server` must be on the PATH.
"""

import hashlib
import hmac
import json
import pathlib
import subprocess
import sys
import tempfile
import time

STARTS = 3


def signature(key, form, body):
    """The header."""
    stamp = str(int(time.time()))
    signed = f"{stamp}.{body}" if form == "stamped" else body
    digest = hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()
    forms = {"plain": digest, "stamped": f"{stamp},{digest}", "github": f"sha256={digest}"}
    return f"{'x-hub-signature-256' if form == 'github' else 'x-signature'}={forms[form]}"


def main(hostler, handler, secret, form, cause):
    name, _, file = secret.partition("=")
    hostler, handler, file = (pathlib.Path(path).resolve() for path in (hostler, handler, file))
    key = file.read_text().strip().encode()
    grants = {
        "publish": {"events": "stream:{webhooks}:events"},
        "secret": {name: {"file": str(file), "expose": True}},
    }
    with tempfile.TemporaryDirectory() as temporary:

        def run(*arguments):
            done = subprocess.run([hostler, *arguments], cwd=temporary, text=True, capture_output=True)
            if done.returncode:
                sys.exit(f"hostler {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
            return done.stdout

        def publish(body, signed):
            header = signature(key, form, signed)
            run("publish", "--redis", "embedded", "--stream", "webhooks", "--body", body, "--header", header)

        def serve(stream, group, prefix):
            grants["key-value"] = {"prefix": prefix, "commit": "checked"}
            flags = ["--handler", handler, "--redis", "embedded", "--stream", stream, "--group", group]
            flags += ["--dead-letter", "dead", "--max-deliveries", str(STARTS), "--backoff-first", "10ms"]
            flags += ["--memory", "128MiB", "--timeout", "30s", "--cpu", "30s"]
            flags += [text for grant, rules in grants.items() for text in (f"--grant-{grant}", json.dumps(rules))]
            done = run("run", *flags, "--until-empty", "--summary", "json")
            return json.loads(done.strip().splitlines()[-1])

        event = '{"id":"e-1","type":"paid"}'
        # The second one is a copy, the third one was changed, and the handler fails at the last one.
        for body, signed in [(event, event), (event, event), (event.replace("1", "2"), event), ("null", "null")]:
            publish(body, signed)
        served = serve("webhooks", "webhooks", "{webhooks}:kv:")
        # Of two copies at the same time, one may run again: that is an attempt, and no retry.
        dead = {"dropped": 1, "max-deliveries": 1}
        if (served["acked"], served["requeued"], served["dead_lettered"]) != (2, STARTS - 1, dead):
            sys.exit(f"not two acks, and {STARTS} attempts at the event that fails: {served}")
        groups = json.loads(run("dlq", "groups", "--redis", "embedded", "--json", "dead"))["groups"]
        dropped = [group for group in groups if "the signature is wrong" in json.dumps(group)]
        failed = [group for group in groups if cause in group["signature"]]
        if [group["count"] for group in groups] != [1, 1] or len(dropped) != 1 or len(failed) != 1:
            sys.exit(f"not a dead letter for the signature, and one for {cause}: {json.dumps(groups, indent=1)}")
        # The event was published with the ack, and once. Without a signature it is dropped.
        events = serve("{webhooks}:events", "events", "{webhooks}:events:kv:")
        if events["attempts"] != 1:
            sys.exit(f"not one event was published: {events}")
    print(f"one event, two dead letters, {STARTS} attempts: {failed[0]['signature']}")


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
