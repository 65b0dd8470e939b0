from hostler_handler import handler
from twilio.http.http_client import TwilioHttpClient


@handler
def handle(body: dict):
    # Its models ask for a server of its own; the client below them is what sends.
    answer = TwilioHttpClient().request("POST", body["url"] + "/Messages.json", data={"To": "+1"})
    print("answer", answer.status_code)
