#!/usr/bin/env python3
"""Different failures are different causes, and `dlq replay --signature` moves one of them.

    tests/libraries/causes.py HOSTLER FOLDER
    tests/libraries/causes.py HOSTLER HANDLER.wasm FAILURE...

FOLDER has table.toml, whose `failures` name a component and the beginning of its bodies. A handler fails as `fails` of
the body says. `redis-server` or `valkey-server` must be on the PATH.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

import table as tables

FAILURES = ["panic", "nil", "index", "error", "wrapped", "type"]

CONFIG = """
redis = "embedded"
stream = "orders"
group = "orders"
handler = "{handler}"
max_deliveries = 2
[backoff]
first = "10ms"
[dead_letter]
key = "orders:dead"
[grant.config]
api = "http://127.0.0.1:1"
[[grant.http]]
host = "payments.example.com"
"""


def main(hostler, folder):
    folder = pathlib.Path(folder).resolve()
    table = tomllib.loads((folder / "table.toml").read_text())
    failures = table["failures"]
    handler, output = tables.Components(table, folder).build(failures["component"])
    if not handler:
        sys.exit(output)
    check(hostler, handler, FAILURES, failures["body"])


def check(hostler, handler, failures, body=""):
    """`body` is the beginning of each body."""
    hostler = pathlib.Path(hostler).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        (temporary / "hostler.toml").write_text(CONFIG.format(handler=handler))

        def run(*arguments):
            done = subprocess.run([hostler, *arguments], cwd=temporary, text=True, capture_output=True)
            if done.returncode:
                sys.exit(f"hostler {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
            return done.stdout

        # Two orders each, with other numbers.
        for fails in failures:
            for number in (7, 41):
                text = body + json.dumps({"fails": fails, "n": number})
                run("publish", "--redis", "embedded", "--stream", "orders", "--body", text)
        run("run", "--config", "hostler.toml", "--until-empty")
        groups = json.loads(run("dlq", "groups", "--redis", "embedded", "--json", "orders:dead"))
        counts = [group["count"] for group in groups["groups"]]
        if counts != [2] * len(failures):
            sys.exit(f"not {len(failures)} causes of two letters each: {json.dumps(groups, indent=1)}")
        first = groups["groups"][0]["signature"]
        run("dlq", "replay", "--redis", "embedded", "orders:dead", "--signature", first)
        left = json.loads(run("dlq", "groups", "--redis", "embedded", "--json", "orders:dead"))
        if first in [group["signature"] for group in left["groups"]] or len(left["groups"]) != len(failures) - 1:
            sys.exit(f"a replay of {first} left {left}")
        print("\n".join(group["signature"] for group in groups["groups"]))
    print(f"{len(failures)} passed, 0 failed")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if sys.argv[3:]:
        check(sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:])
    else:
        main(*sys.argv[1:])
