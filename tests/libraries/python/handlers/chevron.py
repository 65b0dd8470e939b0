import chevron
from hostler_handler import handler


@handler
def handle(body: dict):
    print("answer", chevron.render("Dear {{name}}", {"name": "Ann & Bob"}))
