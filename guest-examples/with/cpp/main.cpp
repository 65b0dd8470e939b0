// A handler for orders. order.cpp reads them; this file does the rest. Standard output goes to the host's log.

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <variant>

#include "bindings/handler.h"
#include "order.hpp"

namespace {

using Message = exports_hostler_handler_message_handler_message_t;
using order::Order, order::Reject;

// Something failed that may work later: the message comes again, after the backoff of the queue.
struct Later {
  std::string why;
};

// A step returns why the order is not done; nothing = go on.
using Step = std::optional<std::variant<Reject, Later>>;

// Text for a call. The call does not change it.
handler_string_t string(std::string_view text) {
  return {reinterpret_cast<std::uint8_t *>(const_cast<char *>(text.data())), text.size()};
}
// @with http key-value publish

handler_list_u8_t bytes(std::string_view text) {
  auto [ptr, len] = string(text);
  return {ptr, len};
}
// @end
// @with key-value publish secrets

std::string_view view(handler_string_t text) { return {reinterpret_cast<const char *>(text.ptr), text.len}; }

Step later(handler_string_t *error) {
  Later later{std::string(view(*error))};
  handler_string_free(error);
  return later;
}
// @end
// @with secrets

// Compare the token of the message with the secret.
Step check_shop(const Message &message) {
  handler_string_t name = string("shop"), secret, error;
  if (!hostler_handler_secrets_get(&name, &secret, &error))
    return later(&error);
  bool known = false;
  for (std::size_t i = 0; i < message.headers.len; i++) {
    auto [header, value] = message.headers.ptr[i];
    known |= view(header) == "x-shop-token" && view(value) == view(secret);
  }
  handler_string_free(&secret);
  if (!known)
    return Reject{"the token of the shop is wrong"};
  return {};
}
// @end
// @with http

// hostler.toml grants this URL.
constexpr std::string_view charges = "https://payments.example.com/charges";

// Charge an order by HTTP. hostler adds an idempotency key, the same in every attempt at this order: no order is
// paid twice.
Step charge(const Order &order) {
  auto json = order.json();
  handler_tuple2_string_list_u8_t header = {string("content-type"), bytes("application/json")};
  hostler_handler_http_request_t request = {
      .method = string("POST"),
      .url = string(charges),
      .headers = {&header, 1},
      .body = {true, bytes(json)},
      .timeout_ms = {},
  };
  hostler_handler_http_response_t response;
  hostler_handler_http_error_t error;
  if (!hostler_handler_http_fetch(&request, &response, &error)) {
    auto tag = std::to_string(error.tag);
    hostler_handler_http_error_free(&error);
    return Later{"the payment failed with error " + tag};
  }
  auto status = response.status;
  hostler_handler_http_response_free(&response);
  if (status >= 200 && status < 300)
    return {};
  auto number = std::to_string(status);
  if (status >= 400 && status < 500)
    return Reject{"order " + order.id + ": the payment was declined (" + number + ")"};
  return Later{"the payment server answered " + number};
}
// @end
// @with key-value

// Remember how much the customer has ordered. The sum is written together with the acknowledgement: each
// order counts once.
Step add_to_total(const Order &order) {
  auto name = "total:" + order.customer;
  handler_string_t key = string(name), error;
  handler_option_list_u8_t known;
  if (!hostler_handler_key_value_get(&key, &known, &error))
    return later(&error);
  std::string digits;
  if (known.is_some)
    digits.assign(reinterpret_cast<const char *>(known.val.ptr), known.val.len);
  handler_option_list_u8_free(&known);
  digits = std::to_string(std::strtoull(digits.c_str(), nullptr, 10) + order.cents);
  handler_list_u8_t value = bytes(digits);
  if (!hostler_handler_key_value_set(&key, &value, nullptr, &error))
    return later(&error);
  // A customer who orders needs no reminder. It goes with the acknowledgement, too.
  name = "reminder:" + order.customer;
  key = string(name);
  if (!hostler_handler_key_value_delete(&key, &error))
    return later(&error);
  // At once: an order that is handled twice counts twice.
  key = string("attempts");
  std::int64_t attempts;
  if (!hostler_handler_key_value_increment(&key, 1, &attempts, &error))
    return later(&error);
  return {};
}
// @end
// @with publish

// Publish an invoice. It appears together with the acknowledgement: once for each order, or not at all.
Step publish_invoice(const Order &order) {
  auto json = order.json();
  handler_tuple2_string_string_t header = {string("content-type"), string("application/json")};
  hostler_handler_publisher_outgoing_t invoice = {.body = bytes(json), .headers = {&header, 1}, .delay_ms = {}};
  handler_string_t queue = string("invoices"), error;
  if (!hostler_handler_publisher_publish(&queue, &invoice, &error))
    return later(&error);
  return {};
}
// @end

Step fulfil(const Message &message) {
  // @with secrets
  if (auto stop = check_shop(message))
    return stop;
  // @end
  auto read = order::read({reinterpret_cast<const char *>(message.body.ptr), message.body.len});
  if (auto *reject = std::get_if<Reject>(&read))
    return *reject;
  auto &order = *std::get_if<Order>(&read);
  // @with http
  if (auto stop = charge(order))
    return stop;
  // @end
  // @with key-value
  if (auto stop = add_to_total(order))
    return stop;
  // @end
  // @with publish
  if (auto stop = publish_invoice(order))
    return stop;
  // @end
  std::printf("done: %s\n", order.json().c_str());
  return {};
}

}  // namespace

extern "C" void exports_hostler_handler_message_handler_handle(
    exports_hostler_handler_message_handler_message_t *message,
    exports_hostler_handler_message_handler_outcome_t *ret) {
  auto stop = fulfil(*message);
  if (!stop) {
    ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
  } else if (auto *reject = std::get_if<Reject>(&*stop)) {
    ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_DROP;
    ret->val.drop.is_some = true;
    // The bindings free this copy after the host has read it.
    handler_string_dup_n(&ret->val.drop.val, reject->reason.data(), reject->reason.size());
  } else {
    std::printf("later: %s\n", std::get_if<Later>(&*stop)->why.c_str());
    ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_NACK_REQUEUE;
    ret->val.nack_requeue.is_some = false;
  }
  // Nothing else flushes the output between two messages.
  std::fflush(stdout);
  hostler_handler_types_message_free(message);
}
