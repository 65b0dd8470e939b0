from bs4 import BeautifulSoup
from hostler_handler import handler


@handler
def handle(body: dict):
    print("answer", BeautifulSoup("<p>5 <b>cents</b></p>", "html.parser").b.text)
