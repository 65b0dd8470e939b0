from hostler_handler import handler
from ruamel.yaml import YAML


@handler
def handle(body: dict):
    print("answer", dict(YAML(typ="safe", pure=True).load("a: 1")))
