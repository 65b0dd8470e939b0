import arrow
from hostler_handler import handler


@handler
def handle(body: dict):
    print("answer", arrow.get("2026-03-29T10:00:00Z").to("Europe/Berlin").format("YYYY-MM-DD HH:mm ZZ"))
