"""Functions that fail."""

import asyncio
import json

import httpx


class OutOfStock(Exception):
    pass


def price(order):
    return int("x")


def weight(order):
    return int("x")


def customer(order):
    return order["customer"]


def ship(order):
    raise OutOfStock(f"item {order['n']}")


def charge(order):
    httpx.post("https://elsewhere.example.com/charges").raise_for_status()


def parse(order):
    json.loads("{")


async def _both(order):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        group.create_task(_stock(order))


async def _stock(order):
    return [1, 2][order["n"]]


def together(order):
    asyncio.run(_both(order))
