// Connects order.c to hostler's WIT. Standard output goes to the host's log.

#include <inttypes.h>
#include <stdio.h>

#include "bindings/handler.h"
#include "order.h"

void exports_hostler_handler_message_handler_handle(
    exports_hostler_handler_message_handler_message_t *message,
    exports_hostler_handler_message_handler_outcome_t *ret) {
  text_t body = {(const char *)message->body.ptr, message->body.len};
  verdict_t verdict = order_handle(body, message->attempt);
  printf("attempt %" PRIu32 ": ", message->attempt);
  switch (verdict.kind) {
  case VERDICT_ACK:
    puts("charged");
    ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
    break;
  case VERDICT_AGAIN:
    printf("payment timed out, again in %" PRIu64 " ms\n", verdict.delay_ms);
    ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_NACK_REQUEUE;
    ret->val.nack_requeue = (handler_option_u64_t){true, verdict.delay_ms};
    break;
  case VERDICT_REJECT:
    fwrite(verdict.reason.at, 1, verdict.reason.length, stdout);
    putchar('\n');
    ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_DROP;
    // The bindings free the reason after the host has read it.
    ret->val.drop = (handler_option_string_t){true, {(uint8_t *)verdict.reason.at, verdict.reason.length}};
    break;
  }
  // Nothing else flushes the output between two messages.
  fflush(stdout);
  hostler_handler_types_message_free(message);
}
