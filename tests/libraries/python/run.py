"""Builds handlers with the libraries of table.toml, runs them with `hostler invoke`, and compares what happens.

Rows with the same `component` are built into one: the host compiles a Python for minutes if it is not optimized. The
versions and digests of its packages are in `locks/`. With names of rows, each has a component of its own, and no lock.
"""

import argparse
import hashlib
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
PAGE = HERE.parents[2] / "docs" / "libraries" / "python.md"


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


#: The handler of a component.
HANDLER = """import importlib

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
        self.options, self.rows, self.port = options, rows, port
        self.folder = options.work / name
        self.folder.mkdir(parents=True, exist_ok=True)
        for module in self.folder.glob("row_*.py"):
            module.unlink()
        required = dict.fromkeys(line for row in rows for line in row.get("requires", [row["name"]]))
        (self.folder / "requirements.txt").write_text("".join(f"{line}\n" for line in required))
        self.lock = HERE / "locks" / f"{name}.lock"
        if self.lock.exists():
            shutil.copy(self.lock, self.folder / "requirements.lock")
        shutil.copytree(HERE / "templates", self.folder / "templates", dirs_exist_ok=True)
        (self.folder / "hostler.toml").write_text(
            f'stream = "orders"\ngroup = "libraries"\nhandler = "handler.wasm"\nmemory = "512MiB"\ntimeout = "60s"\ncpu = "60s"\n\n'
            f'[limit]\ncompile_time = "50m"\ncomponent = "256MiB"\n\n'
            f'[[grant.http]]\nhost = "127.0.0.1"\nscheme = "http"\nport = {port}\n'
        )
        for row in rows:
            if "refused" not in row:
                shutil.copy(HERE / "handlers" / f"{row['name']}.py", self.folder / f"row_{plain(row['name'])}.py")
        (self.folder / "handler.py").write_text(HANDLER % [plain(row["name"]) for row in rows])

    def digest(self) -> str:
        """Of all that the component is made of."""
        files = sorted([*self.folder.glob("*.py"), *self.folder.glob("requirements.*"), *SDK.rglob("*.py"), *SDK.rglob("*.wit")])
        return hashlib.sha256(b"\0".join(str(file).encode() + file.read_bytes() for file in files)).hexdigest()

    def build(self) -> tuple[int, str]:
        # A component that is made again is another one, and has to be compiled.
        mark = self.folder / "digest"
        if mark.exists() and mark.read_text() == self.digest():
            return 0, ""
        tools = ["--pip", self.options.pip, "--componentize-py", self.options.componentize_py]
        environment = os.environ | {"PYTHONPATH": str(SDK)}
        built = run([sys.executable, "-m", "hostler_handler.build", *tools], self.folder, environment)
        if not built[0]:
            mark.write_text(self.digest())
        return built

    def checks(self):
        """Each row, and what is wrong with it: nothing, if it is as the table says."""
        code, output = self.build()
        for row in self.rows:
            if refused := row.get("refused"):
                yield row, "" if code == 1 and refused in output else f"is not refused with `{refused}`:\n{output}"
            else:
                yield row, f"is not built:\n{output}" if code else self.wrong(row)

    def wrong(self, row: dict) -> str:
        """What is wrong with what a row answers."""
        body = {"id": "o-1", "library": plain(row["name"]), "url": f"http://127.0.0.1:{self.port}"}
        invoke = [self.options.hostler, "invoke", "handler.wasm", "--config", "hostler.toml", "--body", json.dumps(body)]
        code, output = run(invoke, self.folder, dict(os.environ))
        return "" if not code and row["answer"] in output else f"does not answer `{row['answer']}`, exit code {code}:\n{output}"

    def write_lock(self) -> str:
        """The error of the build, if there is one."""
        self.lock.unlink(missing_ok=True)
        (self.folder / "requirements.lock").unlink(missing_ok=True)
        code, output = self.build()
        if not code:
            self.lock.parent.mkdir(exist_ok=True)
            shutil.copy(self.folder / "requirements.lock", self.lock)
        return output if code else ""


def run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code of a command, and what it prints."""
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def plain(name: str) -> str:
    """The name as one of a module."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


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
    parser.add_argument("--component", action="append", help="the rows of this component (all)")
    parser.add_argument("--lock", action="store_true", help="write the locks")
    parser.add_argument("--table", action="store_true", help="write the table of the documentation")
    options = parser.parse_args()
    rows = tomllib.loads((HERE / "table.toml").read_text())["row"]
    begin, end = "<!-- libraries -->\n", "<!-- end -->"
    before, rest = PAGE.read_text().split(begin)
    page = before + begin + table(rows) + end + rest.partition(end)[2]
    if options.table:
        PAGE.write_text(page)
        return 0
    if page != PAGE.read_text():
        raise SystemExit(f"the table of {PAGE} is old: make table")
    wanted = options.names or [row["name"] for row in rows if not options.component or row.get("component") in options.component]
    options.work = options.work.resolve()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    groups = {}
    for row in (row for row in rows if row["name"] in wanted):
        alone = options.names or "refused" in row
        groups.setdefault(plain(row["name"]) if alone else row["component"], []).append(row)
    projects = [Project(name, group, options, server.server_port) for name, group in groups.items()]
    if options.lock:
        errors = [project.write_lock() for project in projects if "refused" not in project.rows[0]]
        print("".join(errors), end="")
        return 1 if any(errors) else 0
    wrong = 0
    for row, why in (check for project in projects for check in project.checks()):
        wrong += bool(why)
        print(f"{row['name']} {why}" if why else f"{row['name']}: {verdict(row)}", flush=True)
    print(f"{len(wanted) - wrong} of {len(wanted)} libraries are as the table says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
