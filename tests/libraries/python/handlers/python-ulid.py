from hostler_handler import handler
from ulid import ULID


@handler
def handle(body: dict):
    print("answer", len(str(ULID())), ULID() != ULID())
