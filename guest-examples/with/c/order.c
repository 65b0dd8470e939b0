#include "order.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// A name can be a part of a key: 1 to 64 letters, digits and `-`.
static bool read_name(json_t object, const char *field, char out[NAME_MAX_LENGTH + 1]) {
  json_t value = json_field(object, field);
  if (value.kind != JSON_STRING || value.raw.length <= 2 || value.raw.length > NAME_MAX_LENGTH + 2)
    return false;
  const char *name = value.raw.at + 1;
  size_t length = value.raw.length - 2;
  for (size_t i = 0; i < length; i++) {
    char c = name[i];
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-'))
      return false;
  }
  memcpy(out, name, length);
  out[length] = 0;
  return true;
}

static bool read_cents(json_t object, uint32_t *cents) {
  json_t value = json_field(object, "cents");
  if (value.kind != JSON_NUMBER || value.raw.length > 10)
    return false;
  uint64_t sum = 0;
  for (size_t i = 0; i < value.raw.length; i++) {
    char c = value.raw.at[i];
    if (c < '0' || c > '9')
      return false;
    sum = sum * 10 + (uint64_t)(c - '0');
  }
  *cents = (uint32_t)sum;
  return sum <= UINT32_MAX;
}

order_kind_t order_read(text_t body, order_t *order) {
  json_t object;
  if (!json_parse(body, &object) || object.kind != JSON_OBJECT)
    return ORDER_NONE;
  if (!read_name(object, "id", order->id) || !read_name(object, "customer", order->customer) ||
      !read_cents(object, &order->cents))
    return ORDER_NONE;
  return order->cents ? ORDER_GOOD : ORDER_NOTHING_TO_CHARGE;
}

size_t order_json(const order_t *order, char out[ORDER_JSON_MAX]) {
  const char *format = "{\"order\":\"%s\",\"customer\":\"%s\",\"cents\":%" PRIu32 "}";
  return (size_t)snprintf(out, ORDER_JSON_MAX, format, order->id, order->customer, order->cents);
}
