"""A handler for orders. `order.py` reads them; this file connects the parts to hostler."""

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import Message, Outcome, Outcome_Ack, Outcome_Drop, Outcome_NackRequeue

# @with http
import charge
# @end
# @with publish
import invoice
# @end
from order import Drop, Later, Order
# @with secrets
import shop
# @end
# @with key-value
import total
# @end


class MessageHandler(exports.MessageHandler):
    def handle(self, message: Message) -> Outcome:
        try:
            fulfil(message)
            return Outcome_Ack()
        except Drop as reason:
            return Outcome_Drop(str(reason))
        # An Err is what hostler's functions raise. The message comes again, after the backoff of the queue.
        except (Later, Err) as problem:
            # Standard output goes to the host's log.
            print(f"later: {problem}", flush=True)
            return Outcome_NackRequeue(None)


def fulfil(message: Message) -> None:
    """Do everything for an order."""
    # @with secrets
    shop.check(message)
    # @end
    order = Order.read(message.body)
    # @with http
    charge.charge(order)
    # @end
    # @with key-value
    total.add(order)
    # @end
    # @with publish
    invoice.publish(order)
    # @end
    print(f"done: {order.json()}", flush=True)
