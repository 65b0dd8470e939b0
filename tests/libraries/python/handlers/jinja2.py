from hostler_handler import handler
from jinja2 import Environment, FileSystemLoader

# Below the project, read at run time.
mails = Environment(loader=FileSystemLoader("templates"), autoescape=True)


@handler
def handle(body: dict):
    print("answer", mails.get_template("mail.html").render(name="<Ann>"))
