import sendgrid
from hostler_handler import handler
from sendgrid.helpers.mail import Mail


@handler
def handle(body: dict):
    client = sendgrid.SendGridAPIClient("key", host=body["url"])
    mail = Mail("a@example.com", "b@example.com", "paid", "5 cents")
    print("answer", client.send(mail).status_code)
