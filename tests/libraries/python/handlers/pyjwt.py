import jwt
from hostler_handler import handler


@handler
def handle(body: dict):
    token = jwt.encode({"sub": body["id"]}, "k" * 32, algorithm="HS256")
    print("answer", jwt.decode(token, "k" * 32, algorithms=["HS256"]))
