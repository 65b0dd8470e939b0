"""Builds a handler for each library of table.toml, runs it with `hostler invoke`, and compares what happens.

Every row has its own packages, as `locks/` says: with versions and digests.
"""

import argparse
import itertools
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


#: The handler of a component with several libraries.
TOGETHER = """import importlib

from hostler_handler import _handler, handler

functions = {}
for name in %r:
    importlib.import_module(f"row_{name}")
    functions[name] = _handler._handlers.pop()


@handler
def handle(body: dict):
    return functions[body["library"]](body)
"""


class Project:
    """A project with the handlers of some rows."""

    def __init__(self, name: str, rows: list[dict], options: argparse.Namespace, port: int):
        self.options, self.port = options, port
        self.folder = options.work / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        required = dict.fromkeys(line for row in rows for line in row.get("requires", [row["name"]]))
        (self.folder / "requirements.txt").write_text("".join(f"{line}\n" for line in required))
        self.lock = HERE / "locks" / f"{name}.lock"
        if self.lock.exists():
            shutil.copy(self.lock, self.folder / "requirements.lock")
        shutil.copytree(HERE / "templates", self.folder / "templates")
        (self.folder / "hostler.toml").write_text(
            f'stream = "orders"\ngroup = "libraries"\nhandler = "handler.wasm"\nmemory = "512MiB"\n\n'
            f'[limit]\ncompile_time = "30m"\n\n'
            f'[[grant.http]]\nhost = "127.0.0.1"\nscheme = "http"\nport = {port}\n'
        )
        for row in rows:
            if "refused" not in row:
                shutil.copy(HERE / "handlers" / f"{row['name']}.py", self.folder / f"row_{plain(row['name'])}.py")
        (self.folder / "handler.py").write_text(TOGETHER % [plain(row["name"]) for row in rows])

    def build(self) -> tuple[int, str]:
        tools = ["--pip", self.options.pip, "--componentize-py", self.options.componentize_py]
        environment = os.environ | {"PYTHONPATH": str(SDK)}
        built = run([sys.executable, "-m", "hostler_handler.build", *tools], self.folder, environment)
        if self.options.lock and not self.lock.exists() and not built[0]:
            self.lock.parent.mkdir(exist_ok=True)
            shutil.copy(self.folder / "requirements.lock", self.lock)
        return built

    def wrong(self, row: dict) -> str:
        """What is wrong with what a row answers."""
        body = {"id": "o-1", "library": plain(row["name"]), "url": f"http://127.0.0.1:{self.port}"}
        invoke = [self.options.hostler, "invoke", "handler.wasm", "--config", "hostler.toml", "--body", json.dumps(body)]
        code, output = run(invoke, self.folder, dict(os.environ))
        return "" if not code and row["answer"] in output else f"does not answer `{row['answer']}`, exit code {code}:\n{output}"

    def remove(self) -> None:
        if not self.options.keep:
            shutil.rmtree(self.folder)


def run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code of a command, and what it prints."""
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def plain(name: str) -> str:
    """The name as one of a module."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def check(row: dict, options: argparse.Namespace, port: int) -> str:
    """What is wrong with a row; nothing, if it is as the table says."""
    project = Project(plain(row["name"]), [row], options, port)
    code, output = project.build()
    if refused := row.get("refused"):
        wrong = "" if code == 1 and refused in output else f"is not refused with `{refused}`:\n{output}"
    else:
        wrong = f"is not built:\n{output}" if code else project.wrong(row)
    if not wrong:
        project.remove()
    return wrong


def together(rows: list[dict], options: argparse.Namespace, port: int):
    """Each row, and what is wrong with it, in one component."""
    project = Project("together", rows, options, port)
    code, output = project.build()
    if code:
        raise SystemExit(f"the component with all of them is not built:\n{output}")
    for row in rows:
        yield row, project.wrong(row)
    project.remove()


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
    parser.add_argument("--quick", action="store_true", help="a cut of the table, in one component")
    parser.add_argument("--together", action="store_true", help="one component with all that run")
    parser.add_argument("--keep", action="store_true", help="keep the projects")
    parser.add_argument("--lock", action="store_true", help="write the locks that are missing")
    parser.add_argument("--table", action="store_true", help="print the table of the documentation")
    options = parser.parse_args()
    rows = tomllib.loads((HERE / "table.toml").read_text())["row"]
    if options.table:
        print(table(rows), end="")
        return 0
    wanted = options.names or [row["name"] for row in rows if row.get("quick") or not options.quick]
    chosen = [row for row in rows if row["name"] in wanted]
    options.work = options.work.resolve()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wrong = 0
    port = server.server_port
    running = [row for row in chosen if options.together and "refused" not in row]
    checks = itertools.chain(
        ((row, check(row, options, port)) for row in chosen if row not in running),
        together(running, options, port) if running else (),
    )
    for row, why in checks:
        wrong += bool(why)
        print(f"{row['name']} {why}" if why else f"{row['name']}: {verdict(row)}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} libraries are as the table says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
