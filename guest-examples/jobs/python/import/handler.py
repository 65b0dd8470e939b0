"""Imports a file of customers: a message for each line that is new or has changed."""

import csv
import io

from hostler_handler import Drop, handler, key_value, publish


@handler
def customers(text: str):
    rows = csv.DictReader(io.StringIO(text), delimiter=";")
    if rows.fieldnames != ["id", "name", "mail"]:
        raise Drop(f"the columns are {rows.fieldnames}")
    new = 0
    for row in rows:
        if None in row or None in row.values() or "@" not in row["mail"]:
            raise Drop(f"line {rows.line_num} is not a customer")
        line = f"{row['name']};{row['mail']}".encode()
        if key_value.get(f"customer:{row['id']}") != line:
            # Both with the ack: an import that fails has changed nothing.
            key_value.set(f"customer:{row['id']}", line)
            publish("customers", row)
            new += 1
    print(f"{new} customers are new or have changed")
