import datetime
import decimal
import enum
import typing
import unittest
from dataclasses import dataclass, field

from hostler_handler import Drop, Message, _handler, handler
from hostler_handler._payload import Unfit, reader


class Kind(enum.Enum):
    CARD = "card"


@dataclass
class Item:
    name: str
    cents: int = 0

    def __post_init__(self):
        if self.cents < 0:
            raise ValueError("cents are negative")


@dataclass
class Order:
    id: str
    items: list[Item]
    at: datetime.datetime | None = None
    kind: Kind = Kind.CARD
    sizes: dict[str, float] = field(default_factory=dict)


class Plain(typing.TypedDict):
    id: str
    note: typing.NotRequired[str]


class Reading(unittest.TestCase):
    def test_a_body_is_read_as_the_type(self):
        order = reader(Order)(b'{"id":"o","items":[{"name":"a","cents":2}],"at":"2026-07-01T10:00:00+02:00","sizes":{"x":1},"more":1}')
        self.assertEqual(order.items, [Item("a", 2)])
        self.assertEqual(order.at.utcoffset(), datetime.timedelta(hours=2))
        self.assertEqual((order.kind, order.sizes), (Kind.CARD, {"x": 1.0}))
        self.assertEqual(reader(Plain)(b'{"id":"o"}'), {"id": "o"})
        self.assertEqual(reader(dict)(b'{"id":1}'), {"id": 1})
        self.assertEqual(reader(typing.Any)(b"[1]"), [1])
        self.assertEqual((reader(str)("ä".encode()), reader(bytes)(b"\xff")), ("ä", b"\xff"))
        self.assertEqual(reader(decimal.Decimal)(b'"1.50"'), decimal.Decimal("1.50"))

    def test_other_bodies_are_refused_with_their_place_and_without_their_values(self):
        for wanted, body, why in [
            (Order, b"hello", "the body is not JSON"),
            (Order, b"\xff", "the body is not UTF-8"),
            (Order, b"[" * 100_000, "the body is not JSON"),
            (Order, b'{"id":NaN}', "the body is not JSON"),
            (Order, b"[]", "the body is not an object (Order)"),
            (Order, b"{}", "the body has no id, items"),
            (Order, b'{"id":1,"items":[]}', "id is not a text"),
            (Order, b'{"id":"o","items":[{"name":"a","cents":true}]}', "items[0].cents is not a whole number"),
            (Order, b'{"id":"o","items":[{"name":"a","cents":-1}]}', "items[0] is not a good Item: cents are negative"),
            (Order, b'{"id":"o","items":[],"at":"x"}', "at is not null"),
            (Order, b'{"id":"o","items":[],"kind":"cash"}', "kind is not a Kind"),
            (Order, b'{"id":"o","items":[],"sizes":{"x":"1"}}', "sizes[...] is not a number"),
            (Plain, b'{"note":"x"}', "the body has no id"),
            (typing.Literal["a", "b"], b'"c"', "the body is not one of 'a', 'b'"),
        ]:
            with self.subTest(body[:40]), self.assertRaises(Unfit) as refused:
                reader(wanted)(body)
            self.assertEqual(str(refused.exception), why)

    def test_types_that_nothing_can_be_read_as_are_refused_at_once(self):
        for wanted in (set, object(), list[set], complex):
            with self.assertRaisesRegex(TypeError, "cannot be read as"):
                reader(wanted)


class Handlers(unittest.TestCase):
    def setUp(self):
        _handler._handlers.clear()

    def message(self, body):
        return Message("1-0", "orders", body, [("x-a", "1")], 1, 4, 0)

    def test_a_handler_gets_its_payload_and_the_message_if_it_asks(self):
        @handler
        def take(item: Item, message):
            return item, message.header("X-A")

        self.assertEqual(_handler.the_handler()(self.message(b'{"name":"a"}')), (Item("a"), "1"))
        with self.assertRaisesRegex(Drop, "the body has no name"):
            _handler.the_handler()(self.message(b"{}"))

    def test_a_handler_may_take_the_message_alone(self):
        @handler
        def take(message: Message):
            return message.body

        self.assertEqual(_handler.the_handler()(self.message(b"x")), b"x")

    def test_a_component_has_one_handler(self):
        with self.assertRaisesRegex(TypeError, "no function has @handler"):
            _handler.the_handler()
        for _ in range(2):

            @handler
            def take(body):
                pass

        with self.assertRaisesRegex(TypeError, "several functions have @handler"):
            _handler.the_handler()

    def test_functions_that_can_be_no_handler_are_refused(self):
        def generator(body):
            yield

        for function in (generator, lambda: None, lambda a, b, c: None):
            with self.assertRaises(TypeError):
                handler(function)
