#!/usr/bin/env python3
"""Six failures are six causes, and `dlq replay --signature` moves one of them.

    tests/libraries/causes.py HOSTLER FOLDER

FOLDER has table.toml, whose `failures` name a component and the beginning of its bodies. `redis-server` or
`valkey-server` must be on the PATH.
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
        for fails in FAILURES:
            for number in (7, 41):
                body = failures["body"] + json.dumps({"fails": fails, "n": number})
                run("publish", "--redis", "embedded", "--stream", "orders", "--body", body)
        run("run", "--config", "hostler.toml", "--until-empty")
        groups = json.loads(run("dlq", "groups", "--redis", "embedded", "--json", "orders:dead"))
        counts = [group["count"] for group in groups["groups"]]
        if counts != [2] * len(FAILURES):
            sys.exit(f"not six causes of two letters each: {json.dumps(groups, indent=1)}")
        first = groups["groups"][0]["signature"]
        run("dlq", "replay", "--redis", "embedded", "orders:dead", "--signature", first)
        left = json.loads(run("dlq", "groups", "--redis", "embedded", "--json", "orders:dead"))
        if first in [group["signature"] for group in left["groups"]] or len(left["groups"]) != len(FAILURES) - 1:
            sys.exit(f"a replay of {first} left {left}")
        print("\n".join(group["signature"] for group in groups["groups"]))
    print("6 passed, 0 failed")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
