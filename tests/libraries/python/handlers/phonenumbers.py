import phonenumbers
from hostler_handler import handler


@handler
def handle(body: dict):
    print("answer", phonenumbers.format_number(phonenumbers.parse("030 123456", "DE"), phonenumbers.PhoneNumberFormat.E164))
