import urllib3
from hostler_handler import handler

pool = urllib3.PoolManager()


@handler
def handle(body: dict):
    answer = pool.request("POST", body["url"] + "/charges", json={"cents": 5}, timeout=5)
    print("answer", answer.status, answer.json()["body"])
