from dateutil import parser, rrule, tz
from hostler_handler import handler


@handler
def handle(body: dict):
    at = parser.parse("2026-03-29 12:00").replace(tzinfo=tz.gettz("Europe/Berlin"))
    print("answer", at.isoformat(), len(list(rrule.rrule(rrule.DAILY, count=3, dtstart=at))))
