import fastjsonschema
from hostler_handler import handler

check = fastjsonschema.compile({"properties": {"id": {"type": "number"}}})


@handler
def handle(body: dict):
    try:
        check(body)
    except fastjsonschema.JsonSchemaException as error:
        print("answer", error.message)
