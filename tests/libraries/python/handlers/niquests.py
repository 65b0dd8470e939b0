import asyncio

import niquests
from hostler_handler import handler


@handler
def handle(body: dict):
    answer = niquests.post(body["url"] + "/charges", json={"cents": 5}, timeout=5)
    asyncio.run(asyncio.sleep(0))
    print("answer", answer.status_code, answer.json()["body"])
