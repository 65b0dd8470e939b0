import markdown
from hostler_handler import handler


@handler
def handle(body: dict):
    print("answer", markdown.markdown("**paid**"))
