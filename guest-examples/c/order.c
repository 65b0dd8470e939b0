// For `getentropy`.
#define _DEFAULT_SOURCE

#include "order.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The longest delay between two attempts, in milliseconds.
#define DELAY_MAX 10000

typedef struct {
  text_t id;
  double amount;
  text_t currency;
  text_t status;
  // What to simulate: `payment-timeout`, `random` or `crash`.
  text_t simulate;
  // How many attempts fail with `payment-timeout`.
  uint32_t failures;
} order_t;

static bool is(text_t text, const char *word) {
  return text.length == strlen(word) && !memcmp(text.at, word, text.length);
}

// A buffer for the text of an order's fields. It never needs more bytes than the body.
typedef struct {
  json_t object;
  char *next;
} fields_t;

static text_t put(fields_t *fields, json_t value) {
  text_t text = {fields->next, 0};
  if (value.kind == JSON_STRING) {
    text.length = json_unescape(value, fields->next);
  } else {
    memcpy(fields->next, value.raw.at, value.raw.length);
    text.length = value.raw.length;
  }
  fields->next += text.length;
  return text;
}

// `XADD orders * id 1 amount 5` arrives as {"id":"1","amount":"5"}, so text and numbers are accepted.
static bool text_or_number(fields_t *fields, const char *name, text_t *text) {
  json_t value = json_field(fields->object, name);
  if (value.kind != JSON_STRING && value.kind != JSON_NUMBER)
    return false;
  *text = put(fields, value);
  return text->length > 0;
}

static bool number(text_t text, double *number) {
  json_t value;
  if (!json_parse(text, &value) || value.kind != JSON_NUMBER || value.raw.length > 63)
    return false;
  char digits[64] = {0};
  memcpy(digits, value.raw.at, value.raw.length);
  *number = strtod(digits, NULL);
  return isfinite(*number);
}

static bool optional(fields_t *fields, const char *name, const char *fallback, text_t *text) {
  json_t value = json_field(fields->object, name);
  if (value.kind == JSON_STRING)
    *text = put(fields, value);
  else
    *text = (text_t){fallback, strlen(fallback)};
  return value.kind == JSON_STRING || value.kind == JSON_NULL || value.kind == JSON_NONE;
}

static bool count(fields_t *fields, const char *name, uint32_t *count) {
  json_t value = json_field(fields->object, name);
  double read;
  if (value.kind == JSON_NONE)
    return true;
  if (value.kind != JSON_NUMBER || !number(value.raw, &read))
    return false;
  if (read < 0 || read > UINT32_MAX || read != floor(read))
    return false;
  *count = (uint32_t)read;
  return true;
}

// Returns whether the body is an order. Writes the text of its fields to `buffer`, which is as large as the body.
static bool read_order(text_t body, char *buffer, order_t *order) {
  fields_t fields = {.next = buffer};
  text_t amount;
  if (!json_parse(body, &fields.object) || fields.object.kind != JSON_OBJECT)
    return false;
  order->failures = 1;
  return text_or_number(&fields, "id", &order->id) && text_or_number(&fields, "amount", &amount) &&
         number(amount, &order->amount) && optional(&fields, "currency", "EUR", &order->currency) &&
         optional(&fields, "status", "", &order->status) &&
         optional(&fields, "simulate", "", &order->simulate) &&
         count(&fields, "failures", &order->failures);
}

static bool is_currency(text_t text) {
  for (size_t i = 0; i < text.length; i++)
    if (text.at[i] < 'A' || text.at[i] > 'Z')
      return false;
  return text.length == 3;
}

// Reject with these texts, one after the other, as the reason.
static verdict_t reject(const text_t *texts, size_t count) {
  verdict_t verdict = {.kind = VERDICT_REJECT};
  for (size_t i = 0; i < count; i++)
    verdict.reason.length += texts[i].length;
  char *reason = malloc(verdict.reason.length + 1);
  if (!reason)
    abort();
  verdict.reason.at = reason;
  for (size_t i = 0; i < count; i++) {
    memcpy(reason, texts[i].at, texts[i].length);
    reason += texts[i].length;
  }
  return verdict;
}

#define TEXT(literal) ((text_t){literal, sizeof(literal) - 1})
#define REJECT(...) \
  reject((const text_t[]){__VA_ARGS__}, sizeof((const text_t[]){__VA_ARGS__}) / sizeof(text_t))

static verdict_t charge(const order_t *order, uint32_t attempt) {
  text_t head = TEXT("order ");
  if (!(order->amount > 0))
    return REJECT(head, order->id, TEXT(": nothing to charge"));
  if (!is_currency(order->currency))
    return REJECT(head, order->id, TEXT(": `"), order->currency, TEXT("` is not a currency"));
  if (is(order->status, "cancelled"))
    return REJECT(head, order->id, TEXT(": it was cancelled"));
  if (is(order->simulate, "payment-timeout") && attempt <= order->failures)
    return (verdict_t){.kind = VERDICT_AGAIN, .delay_ms = order_delay(attempt)};
  if (is(order->simulate, "random")) {
    // No other message gets this number. (`rand` begins with the same number in each instance.)
    uint64_t drawn;
    char digits[21];
    if (getentropy(&drawn, sizeof(drawn)))
      abort();
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, drawn);
    return REJECT(head, order->id, TEXT(": drew "), (text_t){digits, (size_t)length});
  }
  if (is(order->simulate, "crash")) {
    // A bug that a second attempt does not cure. The host counts a failed attempt.
    fprintf(stderr, "order %.*s hit a bug\n", (int)order->id.length, order->id.at);
    abort();
  }
  return (verdict_t){.kind = VERDICT_ACK};
}

verdict_t order_handle(text_t body, uint32_t attempt) {
  order_t order;
  char *buffer = malloc(body.length + 1);
  if (!buffer)
    abort();
  verdict_t verdict = read_order(body, buffer, &order) ? charge(&order, attempt) : REJECT(TEXT("not an order"));
  free(buffer);
  return verdict;
}

// The delay doubles after every attempt.
uint64_t order_delay(uint32_t attempt) {
  uint32_t doublings = attempt > 11 ? 10 : attempt ? attempt - 1 : 0;
  uint64_t delay = UINT64_C(100) << doublings;
  return delay < DELAY_MAX ? delay : DELAY_MAX;
}
