import structlog
from hostler_handler import handler

log = structlog.get_logger()


@handler
def handle(body: dict):
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    log.info("answer", order=body["id"])
