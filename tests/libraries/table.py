#!/usr/bin/env python3
"""Builds and runs the handlers of a table of libraries, and requires the verdicts of the table.

    tests/libraries/table.py HOSTLER FOLDER [--quick] [--write] [NAME...]

FOLDER has table.toml. The handler of each row is invoked twice, each time in a fresh instance, with the name of the
row as the body. A local server stands in for the services, at the URL that the configuration value `api` has.
With --write nothing is run: the page of the language gets the table.
"""

import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import tomllib

ANSWERS = {
    "/v1/payment_intents": {"id": "pi_1", "object": "payment_intent"},
    "/v1/refunds": {"id": "re_1", "object": "refund", "amount": 4250, "created": 1, "currency": "eur"},
    "/v1/chat/completions": {"choices": [{"message": {"role": "assistant", "content": "hi"}}]},
    "/slack/chat.postMessage": {"ok": True, "channel": "C1", "ts": "1.2"},
    "/api/v3/repos/shop/orders/issues": {"number": 7},
}

CONFIG = """
redis = "embedded"
stream = "libraries"
group = "libraries"
[grant.config]
api = "http://127.0.0.1:{port}"
[[grant.http]]
scheme = "http"
host = "127.0.0.1"
port = {port}
[[grant.tcp]]
host = "127.0.0.1"
port = {port}
"""


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = []

    def answer(self):
        size = int(self.headers.get("content-length") or 0)
        self.rfile.read(size)
        Server.seen.append(f"{self.command} {self.path}")
        path = self.path.split("?")[0]
        busy = path == "/busy-once" and len(Server.seen) == 1
        body = json.dumps(ANSWERS.get(path, {"ok": True})).encode()
        self.send_response(503 if busy else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_):
        pass


class Components:
    """The components of a table, each built once."""

    def __init__(self, table, folder):
        self.table, self.folder, self.built = table, folder, {}

    def build(self, name, how="build"):
        """The path of a component, or None and the output of its build."""
        if name not in self.built:
            command = [part.format(component=name) for part in self.table[how]]
            done = subprocess.run(command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            path = self.folder / self.table["handler"].format(component=name, crate=name.replace("-", "_"))
            self.built[name] = (path if done.returncode == 0 else None, done.stdout)
        return self.built[name]


def difference(hostler, config, components, row):
    """The difference to the verdict; None if there is none."""
    refused = row["verdict"].startswith("refused with ")
    words = row["verdict"].removeprefix("refused with ")
    handler, output = components.build(row.get("component", row["name"]), "build_alone" if row.get("alone") else "build")
    if not handler:
        return None if refused and words in output else f"it does not build:\n{output[-2000:]}"
    logs = []
    for _ in range(2):
        Server.seen.clear()
        command = [hostler, "invoke", handler, "--config", config, "--json", "--body", row["name"]]
        done = subprocess.run(command, text=True, capture_output=True)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            text = done.stdout + done.stderr
            return None if refused and words in text else f"hostler says: {text}"
        text = json.dumps(answer, ensure_ascii=False)
        if refused:
            told = "\n".join([answer["reason"] or "", *answer["logs"]])
            return None if answer["outcome"] in ("fault", "nack-requeue") and words in told else f"got {text}"
        if answer["outcome"] != "ack":
            return f"got {text}"
        # A signed URL has another query each time.
        seen = [request.split("?")[0] for request in Server.seen] if "sends_paths" in row else Server.seen
        if sorted(seen) != sorted(row.get("sends_paths", row.get("sends", []))):
            return f"it sent {Server.seen}"
        log = "\n".join(answer["logs"])
        missing = [part for part in row.get("logs", []) if part not in log]
        if missing:
            return f"the log lacks {missing}: {log}"
        logs.append(log)
    if row.get("differs") and (logs[0] == logs[1] or not logs[0]):
        return f"two instances drew the same: {logs[0]}"
    return None


def page(table):
    """The rows, as the page of the language shows them."""
    lines = ["| | library | verdict |", "|---|---|---|"]
    lines += [f"| {row['kind']} | `{row['library']}` | {shown(row['verdict'])} |" for row in table["row"]]
    return "\n".join(lines)


def shown(verdict):
    """A verdict, with the words of a refusal as code."""
    before, refused, words = verdict.partition("refused with ")
    return f"{before}refused: `{words}`" if refused else verdict


def difference_of_page(folder, table, write):
    """Whether the page of the language has this table; with `write` it gets it."""
    path = folder.parents[2] / "docs" / "libraries" / f"{folder.name}.md"
    text = path.read_text()
    begin, end = f"<!-- table: tests/libraries/{folder.name} -->\n", "<!-- end -->"
    before, rest = text.split(begin)
    wanted = f"{before}{begin}{page(table)}\n{end}{rest.split(end, 1)[1]}"
    if write:
        path.write_text(wanted)
        return None
    return None if text == wanted else f"{path.name} has another table: run table.py --write"


def main(hostler, folder, *names):
    folder = pathlib.Path(folder).resolve()
    table = tomllib.loads((folder / "table.toml").read_text())
    problem = difference_of_page(folder, table, "--write" in names)
    if "--write" in names or problem:
        return problem
    quick = "--quick" in names
    names = set(names) - {"--quick"}
    rows = [row for row in table["row"] if not quick or row.get("component") == "quick" or row.get("quick")]
    rows = [row for row in rows if not names or row["name"] in names]
    components = Components(table, folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hostler = pathlib.Path(hostler).resolve()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        config = pathlib.Path(temporary) / "hostler.toml"
        config.write_text(CONFIG.format(port=server.server_port))
        for row in rows:
            problem = difference(hostler, config, components, row)
            failed += problem is not None
            print(f"{'FAILED' if problem else 'ok'}  {row['library']}: {problem or row['verdict']}", flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
