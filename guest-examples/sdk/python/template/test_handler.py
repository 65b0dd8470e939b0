# @with order
import unittest
from types import SimpleNamespace
from unittest import mock

import handler
from handler import Order
from hostler_handler import Drop


class Orders(unittest.TestCase):
    def setUp(self):
        self.message = SimpleNamespace(attempt=1, header={"x-shop-token": "example-token"}.get)
        # @with http
        self.post = self.replace("requests.post")
        self.post.return_value.status_code = 201
        # @end
        # @with publish
        self.publish = self.replace("publish")
        # @end
        # @with key-value
        self.keys = self.replace("key_value")
        self.keys.get.return_value = b"50"
        # @end
        # @with secrets
        self.replace("secrets").get.return_value = "example-token"
        # @end

    def replace(self, name):
        patch = mock.patch(f"handler.{name}")
        self.addCleanup(patch.stop)
        return patch.start()

    def test_a_good_order_is_done(self):
        order = Order("o-1", "c-7", 4250)
        handler.take(order, self.message)
        # @with http
        self.assertEqual(self.post.call_args.kwargs["json"], {"order": "o-1", "cents": 4250})
        # @end
        # @with key-value
        self.keys.set.assert_called_once_with("total:c-7", "4300")
        # @end
        # @with publish
        self.publish.assert_called_once_with("invoices", order)
        # @end

    def test_an_order_without_an_amount_is_dropped(self):
        with self.assertRaisesRegex(Drop, "order o-1: nothing to charge"):
            handler.take(Order("o-1", "c-7", 0), self.message)


if __name__ == "__main__":
    unittest.main()
# @end
