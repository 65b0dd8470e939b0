// A handler for orders. order.c reads them; this file does the rest. Standard output goes to the host's log.

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// @with key-value secrets
#include <string.h>
// @end

#include "bindings/handler.h"
#include "order.h"

typedef exports_hostler_handler_message_handler_message_t message_t;
typedef exports_hostler_handler_message_handler_outcome_t outcome_t;

// The longest reason of a drop.
#define REASON_MAX 256

// The steps below return whether to go on. Else they have set the outcome, by `drop` or `later`.

// Give the message up, with a reason for people.
static bool drop(outcome_t *outcome, const char *format, ...) {
  char *reason = malloc(REASON_MAX);
  if (!reason)
    abort();
  va_list args;
  va_start(args, format);
  vsnprintf(reason, REASON_MAX, format, args);
  va_end(args);
  outcome->tag = HOSTLER_HANDLER_TYPES_OUTCOME_DROP;
  // The bindings free the reason after the host has read it.
  outcome->val.drop.is_some = true;
  handler_string_set(&outcome->val.drop.val, reason);
  return false;
}

// Something failed that may work later: the message comes again, after the backoff of the queue.
static bool later(outcome_t *outcome, const char *what, handler_string_t *why) {
  printf("later: %s: %.*s\n", what, (int)why->len, (const char *)why->ptr);
  outcome->tag = HOSTLER_HANDLER_TYPES_OUTCOME_NACK_REQUEUE;
  outcome->val.nack_requeue = (handler_option_u64_t){false, 0};
  return false;
}
// @with secrets

// Compare the token of the message with the secret.
static bool check_shop(const message_t *message, outcome_t *outcome) {
  handler_string_t name, secret, error;
  handler_string_set(&name, "shop");
  if (!hostler_handler_secrets_get(&name, &secret, &error))
    return later(outcome, "the secret", &error);
  bool known = false;
  for (size_t i = 0; i < message->headers.len; i++) {
    handler_string_t header = message->headers.ptr[i].f0, value = message->headers.ptr[i].f1;
    bool is_token = header.len == strlen("x-shop-token") && !memcmp(header.ptr, "x-shop-token", header.len);
    known |= is_token && value.len == secret.len && !memcmp(value.ptr, secret.ptr, secret.len);
  }
  handler_string_free(&secret);
  return known || drop(outcome, "the token of the shop is wrong");
}
// @end
// @with http

// hostler.toml grants this URL.
#define CHARGES "https://payments.example.com/charges"

// Charge an order by HTTP. hostler adds an idempotency key, the same in every attempt at this order: no order is
// paid twice.
static bool charge(const order_t *order, outcome_t *outcome) {
  char json[ORDER_JSON_MAX];
  handler_list_u8_t body = {(uint8_t *)json, order_json(order, json)};
  handler_tuple2_string_list_u8_t header = {.f1 = {(uint8_t *)"application/json", 16}};
  handler_string_set(&header.f0, "content-type");
  hostler_handler_http_request_t request = {.headers = {&header, 1}, .body = {true, body}};
  handler_string_set(&request.method, "POST");
  handler_string_set(&request.url, CHARGES);
  hostler_handler_http_response_t response;
  hostler_handler_http_error_t error;
  char why[32];
  handler_string_t text = {(uint8_t *)why, 0};
  if (!hostler_handler_http_fetch(&request, &response, &error)) {
    text.len = (size_t)snprintf(why, sizeof why, "error %d", error.tag);
    hostler_handler_http_error_free(&error);
    return later(outcome, "the payment", &text);
  }
  int status = response.status;
  hostler_handler_http_response_free(&response);
  if (status >= 200 && status < 300)
    return true;
  if (status >= 400 && status < 500)
    return drop(outcome, "order %s: the payment was declined (%d)", order->id, status);
  text.len = (size_t)snprintf(why, sizeof why, "status %d", status);
  return later(outcome, "the payment", &text);
}
// @end
// @with key-value

// Remember how much the customer has ordered. The sum is written together with the acknowledgement: each
// order counts once.
static bool add_to_total(const order_t *order, outcome_t *outcome) {
  char name[sizeof "reminder:" + NAME_MAX_LENGTH], digits[24] = {0};
  snprintf(name, sizeof name, "total:%s", order->customer);
  handler_string_t key, error;
  handler_string_set(&key, name);
  handler_option_list_u8_t known;
  if (!hostler_handler_key_value_get(&key, &known, &error))
    return later(outcome, "the total", &error);
  if (known.is_some && known.val.len < sizeof digits)
    memcpy(digits, known.val.ptr, known.val.len);
  handler_option_list_u8_free(&known);
  uint64_t sum = strtoull(digits, NULL, 10) + order->cents;
  handler_list_u8_t value = {(uint8_t *)digits, 0};
  value.len = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, sum);
  if (!hostler_handler_key_value_set(&key, &value, NULL, &error))
    return later(outcome, "the total", &error);
  // A customer who orders needs no reminder. It goes with the acknowledgement, too.
  snprintf(name, sizeof name, "reminder:%s", order->customer);
  handler_string_set(&key, name);
  if (!hostler_handler_key_value_delete(&key, &error))
    return later(outcome, "the reminder", &error);
  // At once: an order that is handled twice counts twice.
  handler_string_set(&key, "attempts");
  int64_t attempts;
  if (!hostler_handler_key_value_increment(&key, 1, &attempts, &error))
    return later(outcome, "the attempts", &error);
  return true;
}
// @end
// @with publish

// Publish an invoice. It appears together with the acknowledgement: once for each order, or not at all.
static bool publish_invoice(const order_t *order, outcome_t *outcome) {
  char json[ORDER_JSON_MAX];
  handler_tuple2_string_string_t header;
  handler_string_set(&header.f0, "content-type");
  handler_string_set(&header.f1, "application/json");
  hostler_handler_publisher_outgoing_t invoice = {
      .body = {(uint8_t *)json, order_json(order, json)},
      .headers = {&header, 1},
  };
  handler_string_t queue, error;
  handler_string_set(&queue, "invoices");
  if (!hostler_handler_publisher_publish(&queue, &invoice, &error))
    return later(outcome, "the invoice", &error);
  return true;
}
// @end

static bool fulfil(const message_t *message, outcome_t *outcome) {
  // @with secrets
  if (!check_shop(message, outcome))
    return false;
  // @end
  order_t order;
  switch (order_read((text_t){(const char *)message->body.ptr, message->body.len}, &order)) {
  case ORDER_NONE:
    return drop(outcome, "not an order");
  case ORDER_NOTHING_TO_CHARGE:
    return drop(outcome, "order %s: nothing to charge", order.id);
  case ORDER_GOOD:
    break;
  }
  // @with http
  if (!charge(&order, outcome))
    return false;
  // @end
  // @with key-value
  if (!add_to_total(&order, outcome))
    return false;
  // @end
  // @with publish
  if (!publish_invoice(&order, outcome))
    return false;
  // @end
  char json[ORDER_JSON_MAX];
  order_json(&order, json);
  printf("done: %s\n", json);
  outcome->tag = HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
  return true;
}

void exports_hostler_handler_message_handler_handle(message_t *message, outcome_t *ret) {
  fulfil(message, ret);
  // Nothing else flushes the output between two messages.
  fflush(stdout);
  hostler_handler_types_message_free(message);
}
