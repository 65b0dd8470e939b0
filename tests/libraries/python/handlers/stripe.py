import stripe
from hostler_handler import handler

stripe.api_key = "sk_test"


@handler
def handle(body: dict):
    stripe.api_base = body["url"]
    charge = stripe.Charge.create(amount=5, currency="eur", source="tok_visa", idempotency_key=body["id"])
    print("answer", charge.id, charge.paid)
