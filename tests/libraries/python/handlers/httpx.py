import asyncio

import httpx
from hostler_handler import handler


@handler
async def handle(body: dict):
    sync = httpx.post(body["url"] + "/charges", json={"cents": 5})
    async with httpx.AsyncClient() as client:
        several = await asyncio.gather(*(client.get(f"{body['url']}/{n}") for n in range(3)))
    print("answer", sync.json()["body"], [each.json()["path"] for each in several])
