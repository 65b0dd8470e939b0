// A handler: it acks every message.

#include "bindings/handler.h"

void exports_hostler_handler_message_handler_handle(
    exports_hostler_handler_message_handler_message_t *message,
    exports_hostler_handler_message_handler_outcome_t *ret) {
  ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
  hostler_handler_types_message_free(message);
}
