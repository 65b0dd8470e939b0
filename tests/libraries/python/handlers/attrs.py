import attrs
from hostler_handler import handler


@attrs.define
class Order:
    id: str
    cents: int = attrs.field(validator=attrs.validators.gt(0))


@handler
def handle(body: dict):
    print("answer", attrs.asdict(Order(body["id"], 5)))
