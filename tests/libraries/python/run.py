"""Builds a handler for each library of table.toml, runs it with `hostler invoke`, and compares what happens.

Every row has its own packages, as `locks/` says: with versions and digests.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

HERE = Path(__file__).resolve().parent
SDK = HERE.parents[2] / "guest-examples" / "sdk" / "python"


class Server(BaseHTTPRequestHandler):
    """Answers as each of the services would."""

    protocol_version = "HTTP/1.1"

    def _answer(self):
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/invoices/"):
            answer = b""
        else:
            said = {"ok": True, "id": "ch_1", "object": "charge", "paid": True}
            said |= {"method": self.command, "path": self.path, "body": body.decode(errors="replace")}
            answer = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("etag", '"etag"')
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *_):
        pass


def check(row: dict, options: argparse.Namespace, port: int) -> str:
    """What is wrong with a row; nothing, if it is as the table says."""
    name = row["name"]
    project = options.work / re.sub(r"[^a-z0-9.<-]+", "-", name.lower())
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir(parents=True)
    requires = "".join(f"{line}\n" for line in row.get("requires", [name]))
    (project / "requirements.txt").write_text(requires)
    lock = HERE / "locks" / f"{project.name}.lock"
    if lock.exists():
        shutil.copy(lock, project / "requirements.lock")
    handler = HERE / "handlers" / f"{name}.py"
    if "refused" not in row:
        shutil.copy(handler, project / "handler.py")
        shutil.copytree(HERE / "templates", project / "templates")
    (project / "hostler.toml").write_text(
        f'stream = "orders"\ngroup = "libraries"\nhandler = "handler.wasm"\nmemory = "256MiB"\n\n'
        f'[[grant.http]]\nhost = "127.0.0.1"\nscheme = "http"\nport = {port}\n'
    )
    build = [sys.executable, "-m", "hostler_handler.build", "--pip", options.pip, "--componentize-py", options.componentize_py]
    environment = os.environ | {"PYTHONPATH": str(SDK)}
    done = subprocess.run(build, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if refused := row.get("refused"):
        if done.returncode != 1 or refused not in done.stdout:
            return f"is not refused with `{refused}`:\n{done.stdout}"
        return ""
    if done.returncode:
        return f"is not built:\n{done.stdout}"
    if not lock.exists() and options.lock:
        lock.parent.mkdir(exist_ok=True)
        shutil.copy(project / "requirements.lock", lock)
    body = json.dumps({"id": "o-1", "url": f"http://127.0.0.1:{port}"})
    invoke = [options.hostler, "invoke", "handler.wasm", "--config", "hostler.toml", "--body", body]
    done = subprocess.run(invoke, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode or row["answer"] not in done.stdout:
        return f"does not answer `{row['answer']}`, exit code {done.returncode}:\n{done.stdout}"
    if not options.keep:
        shutil.rmtree(project)
    return ""


def verdict(row: dict) -> str:
    """The words of the table."""
    if "refused" in row:
        return f"refused: `{row['refused']}`"
    return f"runs with `{row['with']}`" if "with" in row else "runs"


def table(rows: list[dict]) -> str:
    """The table of the documentation."""
    lines = ["| library | for | in a component |", "|---|---|---|"]
    lines += [f"| {row['name']} | {row['kind']} | {verdict(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="rows of the table (all)")
    parser.add_argument("--hostler")
    parser.add_argument("--pip")
    parser.add_argument("--componentize-py")
    parser.add_argument("--work", type=Path, default=HERE / "build")
    parser.add_argument("--quick", action="store_true", help="a cut of the table")
    parser.add_argument("--keep", action="store_true", help="keep the projects")
    parser.add_argument("--lock", action="store_true", help="write the locks that are missing")
    parser.add_argument("--table", action="store_true", help="print the table of the documentation")
    options = parser.parse_args()
    rows = tomllib.loads((HERE / "table.toml").read_text())["row"]
    if options.table:
        print(table(rows), end="")
        return 0
    chosen = [row for row in rows if row["name"] in options.names or (not options.names and (row.get("quick") or not options.quick))]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wrong = 0
    for row in chosen:
        why = check(row, options, server.server_port)
        wrong += bool(why)
        print(f"{row['name']} {why}" if why else f"{row['name']}: {verdict(row)}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} libraries are as the table says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
