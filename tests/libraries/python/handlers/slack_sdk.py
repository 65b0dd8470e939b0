from hostler_handler import handler
from slack_sdk import WebClient


@handler
def handle(body: dict):
    client = WebClient(token="xoxb", base_url=body["url"] + "/api/")
    print("answer", client.chat_postMessage(channel="#orders", text="paid")["ok"])
