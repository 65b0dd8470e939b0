"""A handler: it acks every message."""

from wit_world import exports
from wit_world.imports.types import Message, Outcome, Outcome_Ack


class MessageHandler(exports.MessageHandler):
    def handle(self, message: Message) -> Outcome:
        return Outcome_Ack()
