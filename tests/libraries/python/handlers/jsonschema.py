import jsonschema
from hostler_handler import handler


@handler
def handle(body: dict):
    try:
        jsonschema.validate(body, {"properties": {"id": {"type": "number"}}})
    except jsonschema.ValidationError as error:
        print("answer", error.message)
