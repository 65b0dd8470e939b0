from hostler_handler import handler
from loguru import logger


@handler
def handle(body: dict):
    logger.info("answer {}", body["id"])
