import asyncio
import csv
import datetime
import hashlib
import hmac
import io
import logging
import random
import secrets
import sqlite3
import threading
import uuid
import zoneinfo

from hostler_handler import handler


@handler
async def handle(body: dict):
    # Found at run time.
    import colorsys
    import statistics

    rows = list(csv.DictReader(io.StringIO("id,cents\no-1,5\n")))
    berlin = datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    mac = hmac.new(b"k", b"m", hashlib.sha256).hexdigest()[:8]
    logging.getLogger("orders").info("logged")
    assert random.random() != random.random() and uuid.uuid4() != uuid.uuid4() and secrets.token_hex()
    assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,) and colorsys
    try:
        threading.Thread(target=print).start()
    except RuntimeError as error:
        print(error)
    inside = await asyncio.to_thread(lambda: 7)
    print("answer", rows, berlin.utcoffset(), mac, statistics.mean([1, 2]), inside)
