import unittest

from order import Drop, Order


class Orders(unittest.TestCase):
    def test_an_order_is_read_and_written(self):
        order = Order.read(b'{"id":"o-1","customer":"c-7","cents":4250,"note":"x"}')
        self.assertEqual(order.json(), '{"order":"o-1","customer":"c-7","cents":4250}')

    def test_other_bodies_are_dropped_with_a_reason(self):
        for body, reason in [
            (b"", "not an order"),
            (b"hello", "not an order"),
            (b"null", "not an order"),
            (b"\xff", "not an order"),
            (b"[" * 100_000, "not an order"),
            (b'{"id":"o-1","cents":1}', "not an order"),
            (b'{"id":"o 1","customer":"c","cents":1}', "not an order"),
            (b'{"id":"o","customer":"c","cents":-1}', "not an order"),
            (b'{"id":"o","customer":"c","cents":0}', "order o: nothing to charge"),
        ]:
            with self.subTest(body[:40]), self.assertRaises(Drop) as dropped:
                Order.read(body)
            self.assertEqual(str(dropped.exception), reason)


if __name__ == "__main__":
    unittest.main()
