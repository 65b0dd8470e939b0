import logging

from hostler_handler import handler


@handler
def handle(body: bytes):
    logging.info("%d bytes", len(body))
