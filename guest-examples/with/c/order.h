// Reads orders. This file does not depend on WebAssembly, so `make test` runs it directly.
#pragma once

#include <stdint.h>

#include "json.h"

// The longest name of an order or a customer.
#define NAME_MAX_LENGTH 64
// A buffer for `order_json`.
#define ORDER_JSON_MAX 256

typedef struct {
  char id[NAME_MAX_LENGTH + 1];
  char customer[NAME_MAX_LENGTH + 1];
  uint32_t cents;
} order_t;

typedef enum { ORDER_GOOD, ORDER_NONE, ORDER_NOTHING_TO_CHARGE } order_kind_t;

// Reads an order. `order` is set unless the body is no order.
order_kind_t order_read(text_t body, order_t *order);

// Writes what others get to know about the order. Its names need no escapes. Returns the number of bytes.
size_t order_json(const order_t *order, char out[ORDER_JSON_MAX]);
