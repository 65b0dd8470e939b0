"""A handler for orders. `order.py` decides; this file connects it to hostler."""

from wit_world import exports
from wit_world.imports.types import Message, Outcome, Outcome_Ack, Outcome_Drop, Outcome_NackRequeue

import order


class MessageHandler(exports.MessageHandler):
    def handle(self, message: Message) -> Outcome:
        verdict = order.handle(message.body, message.attempt)
        # Standard output goes to the host's log.
        print(f"attempt {message.attempt}: {verdict}", flush=True)
        match verdict:
            case order.Again(delay_ms):
                return Outcome_NackRequeue(delay_ms)
            case order.Reject(reason):
                return Outcome_Drop(reason)
            case _:
                return Outcome_Ack()
