"""Runs the handler of `behaviour/` with `hostler invoke`: failures have causes of their own, and no work is lost."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: The failure, and what its cause says.
FAILURES = {
    "price": "ValueError: invalid literal for int() with base 10: 'x', at price (failures.py:",
    "weight": "ValueError: invalid literal for int() with base 10: 'x', at weight (failures.py:",
    "customer": "KeyError: 'customer', at customer (failures.py:",
    "ship": "failures.OutOfStock: item 7, at ship (failures.py:",
    "charge": "httpx.ReadError: [Errno 13] hostler denied POST https://elsewhere.example.com/charges: ",
    "parse": "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1), at parse (failures.py:",
    "together": "IndexError: list index out of range, at _stock (failures.py:",
}
ACK, FAULT = 0, 12
#: What is left behind, the exit code of `hostler invoke`, and what it prints.
UNFINISHED = {
    "floating": (ACK, "charged"),
    "run_by_hand": (ACK, "charged"),
    "a_loop_left_open": (ACK, "charged"),
    "returned": (ACK, "charged"),
    "in_a_thread": (ACK, "charged"),
    "floating_and_failed": (FAULT, "RuntimeError: declined"),
    "failed_before": (FAULT, "RuntimeError: declined"),
    "stuck": (FAULT, "the task forever waits for something that never happens"),
    "too_long": (FAULT, "the handler has returned, and the task charge sleeps beyond the time of the attempt"),
    "not_awaited": (FAULT, "charge was called without `await`: nothing of it ran"),
    "a_thread": (FAULT, "cannot start the mailer: a handler in Python has one thread"),
    "a_pool": (FAULT, "a handler in Python has one thread"),
}


def invoke(hostler: str, body: dict) -> tuple[int, str]:
    command = [hostler, "invoke", "handler.wasm", "--config", "hostler.toml", "--body", json.dumps(body)]
    done = subprocess.run(command, cwd=HERE / "behaviour", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def cause(output: str) -> str:
    """What a dead letter would quote."""
    return next((line for line in output.splitlines() if "stderr: " in line), "").partition("stderr: ")[2].partition("; ")[0]


def main(hostler: str) -> int:
    wrong, causes = [], set()
    for name, expected in FAILURES.items():
        code, output = invoke(hostler, {"fails": name, "n": 7})
        causes.add(cause(output))
        if code != FAULT or not cause(output).startswith(expected):
            wrong.append(f"{name}: the cause is not `{expected}`, exit code {code}:\n{output}")
    if len(causes) != len(FAILURES):
        wrong.append(f"{len(FAILURES)} failures have {len(causes)} causes: {causes}")
    for name, (expected, words) in UNFINISHED.items():
        code, output = invoke(hostler, {"leave": name})
        if code != expected or words not in output:
            wrong.append(f"{name}: not `{words}` with exit code {expected}, but {code}:\n{output}")
    print("\n".join(wrong) or f"{len(FAILURES)} failures have {len(causes)} causes; no work of {len(UNFINISHED)} functions is lost")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
