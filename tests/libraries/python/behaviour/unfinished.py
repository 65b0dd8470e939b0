"""Functions that leave work behind."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

kept = set()


async def charge(after=0.01):
    await asyncio.sleep(after)
    print("charged")


async def declined():
    await asyncio.sleep(0.01)
    raise RuntimeError("declined")


async def forever():
    await asyncio.get_running_loop().create_future()


async def floating():
    asyncio.create_task(charge())


async def floating_and_failed():
    kept.add(asyncio.create_task(declined()))


async def failed_before():
    kept.add(asyncio.create_task(declined()))
    await asyncio.sleep(0.05)


async def stuck():
    asyncio.create_task(forever())


async def too_long():
    asyncio.create_task(charge(after=3600))


def not_awaited():
    charge()


def run_by_hand():
    async def main():
        asyncio.create_task(charge())

    asyncio.run(main())


def a_loop_left_open():
    loop = asyncio.new_event_loop()
    kept.add(loop.create_task(charge()))


def a_thread():
    threading.Thread(target=print, name="the mailer").start()


def a_pool():
    ThreadPoolExecutor().submit(print, "charged")


def returned():
    return charge()


async def in_a_thread():
    await asyncio.to_thread(print, "charged")
