"""Fails, or leaves work behind, as the message says."""

import failures
import unfinished
from hostler_handler import handler


@handler
def handle(body: dict):
    if "fails" in body:
        return getattr(failures, body["fails"])(body)
    return getattr(unfinished, body["leave"])()
