"""Sends an invoice by mail, from a template."""

import os
from typing import TypedDict

import httpx
import jinja2
from hostler_handler import Drop, RetryAfter, handler

mails = jinja2.Environment(loader=jinja2.FileSystemLoader("templates"), autoescape=True)


class Invoice(TypedDict):
    order: str
    name: str
    mail: str
    cents: int


@handler
async def send(invoice: Invoice):
    html = mails.get_template("invoice.html").render(invoice)
    mail = {"from": os.environ["MAIL_FROM"], "to": invoice["mail"], "subject": f"Order {invoice['order']}", "html": html}
    answer = await httpx.AsyncClient().post("https://api.resend.com/emails", json=mail)
    if answer.status_code == 429:
        raise RetryAfter(float(answer.headers.get("retry-after", 10)))
    if answer.status_code == 422:
        raise Drop(f"order {invoice['order']}: {answer.json()['message']}")
    answer.raise_for_status()
