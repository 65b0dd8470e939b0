# @with http
"""Charges an order by HTTP."""

from wit_world.imports import http

from order import Drop, Later, Order

# `hostler.toml` grants this URL.
CHARGES = "https://payments.example.com/charges"


def charge(order: Order) -> None:
    """hostler adds an idempotency key, the same in every attempt at this order: no order is paid twice."""
    request = http.Request(
        method="POST",
        url=CHARGES,
        headers=[("content-type", b"application/json")],
        body=order.json().encode(),
        timeout_ms=None,
    )
    # It raises an Err with an http.Error_Timeout() or the like.
    status = http.fetch(request).status
    if 400 <= status < 500:
        raise Drop(f"order {order.id}: the payment was declined ({status})")
    if not 200 <= status < 300:
        raise Later(f"the payment server answered {status}")
# @end
