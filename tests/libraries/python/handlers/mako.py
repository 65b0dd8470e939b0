from hostler_handler import handler
from mako.template import Template


@handler
def handle(body: dict):
    print("answer", Template("Dear ${name}").render(name="Ann"))
