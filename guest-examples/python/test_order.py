import json
import unittest

from order import DELAY_MAX, Ack, Again, Reject, delay, handle


def body(**fields) -> bytes:
    return json.dumps(fields).encode()


class Orders(unittest.TestCase):
    def test_good_orders_are_acked(self):
        self.assertEqual(handle(body(id="o-1", amount=42.5, currency="EUR", status="paid"), 1), Ack())
        self.assertEqual(handle(b'{"id":1,"amount":5}', 1), Ack())

    def test_the_fields_of_a_stream_entry_are_accepted(self):
        self.assertEqual(handle(b'{"id":"1","amount":"5"}', 1), Ack())

    def test_a_payment_that_times_out_is_tried_again_with_growing_delays(self):
        flaky = body(id="o-2", amount=1, simulate="payment-timeout", failures=3)
        self.assertEqual([handle(flaky, n) for n in (1, 2, 3, 4)], [Again(100), Again(200), Again(400), Ack()])

    def test_the_delay_has_a_limit(self):
        self.assertEqual(delay(2**32 - 1), DELAY_MAX)

    def test_bodies_that_are_not_orders_are_dropped(self):
        bodies = [
            b"", b"hello", b"[]", b"null", b"{}", b'{"id":"o-3"}', b'{"id":"","amount":1}', b'{"id":true,"amount":1}',
            b'{"id":"o-3","amount":NaN}', b'{"id":"o-3","amount":"NaN"}', b'{"id":"\xff","amount":1}',
            b'{"id":"\\ud800","amount":1}', '{"id":"o-3","amount":1}'.encode("utf-16"), b"[" * 100_000,
        ]
        for case in bodies:
            with self.subTest(case[:40]):
                self.assertEqual(handle(case, 1), Reject("not an order"))

    def test_orders_that_cannot_be_charged_are_dropped_with_a_reason(self):
        cases = [
            (body(id="o-4", amount=0), "order o-4: nothing to charge"),
            (body(id=5, amount=1, status="cancelled"), "order 5: it was cancelled"),
            (body(id="o-6", amount=1, currency="euros"), "order o-6: `euros` is not a currency"),
        ]
        for case, reason in cases:
            self.assertEqual(handle(case, 1), Reject(reason))

    def test_a_bug_crashes(self):
        with self.assertRaises(RuntimeError):
            handle(body(id="o-7", amount=1, simulate="crash"), 1)


if __name__ == "__main__":
    unittest.main()
