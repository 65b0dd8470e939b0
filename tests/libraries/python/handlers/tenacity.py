import tenacity
from hostler_handler import handler

calls = []


@tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(0.01))
def flaky():
    calls.append(1)
    if len(calls) < 3:
        raise OSError("no")
    return len(calls)


@handler
def handle(body: dict):
    print("answer", flaky())
