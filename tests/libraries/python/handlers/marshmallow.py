from hostler_handler import handler
from marshmallow import Schema, ValidationError, fields


class Order(Schema):
    id = fields.Str(required=True)
    cents = fields.Int(required=True)


@handler
def handle(body: dict):
    try:
        Order().load({"id": body["id"], "cents": "x"})
    except ValidationError as error:
        print("answer", error.messages)
