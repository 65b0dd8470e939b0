// Connects order.cpp to hostler's WIT. Standard output goes to the host's log.

#include <cstdio>
#include <string>

#include "bindings/handler.h"
#include "order.hpp"

namespace {

template <class... Cases>
struct match : Cases... {
  using Cases::operator()...;
};

}  // namespace

extern "C" void exports_hostler_handler_message_handler_handle(
    exports_hostler_handler_message_handler_message_t *message,
    exports_hostler_handler_message_handler_outcome_t *ret) {
  std::string_view body(reinterpret_cast<const char *>(message->body.ptr), message->body.len);
  auto verdict = order::handle(body, message->attempt);
  std::string log = "attempt " + std::to_string(message->attempt) + ": ";
  std::visit(match{
                 [&](order::Ack) {
                   log += "charged";
                   ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
                 },
                 [&](order::Again again) {
                   std::uint64_t delay = again.delay.count();
                   log += "payment timed out, again in " + std::to_string(delay) + " ms";
                   ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_NACK_REQUEUE;
                   ret->val.nack_requeue = {true, delay};
                 },
                 [&](const order::Reject &reject) {
                   log += reject.reason;
                   ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_DROP;
                   ret->val.drop.is_some = true;
                   // The bindings free this copy after the host has read it.
                   handler_string_dup_n(&ret->val.drop.val, reject.reason.data(), reject.reason.size());
                 },
             },
             verdict);
  log += '\n';
  std::fwrite(log.data(), 1, log.size(), stdout);
  // Nothing else flushes the output between two messages.
  std::fflush(stdout);
  hostler_handler_types_message_free(message);
}
