import yaml
from hostler_handler import handler


@handler
def handle(body: dict):
    print("answer", yaml.safe_load("a: [1, 2]"), yaml.dump({"b": 1}).strip())
