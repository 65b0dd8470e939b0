from hostler_handler import handler
from sqlalchemy import create_engine, text


@handler
def handle(body: dict):
    with create_engine("sqlite://").connect() as connection:
        print("answer", connection.execute(text("select 2 + 3")).scalar())
