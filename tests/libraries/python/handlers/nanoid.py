from hostler_handler import handler
from nanoid import generate


@handler
def handle(body: dict):
    print("answer", len(generate()), generate() != generate())
