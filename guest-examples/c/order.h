// Decides about an order. This file does not depend on WebAssembly, so `make test` runs it directly.
#pragma once

#include <stdint.h>

#include "json.h"

typedef enum { VERDICT_ACK, VERDICT_AGAIN, VERDICT_REJECT } verdict_kind_t;

typedef struct {
  verdict_kind_t kind;
  // VERDICT_AGAIN: the delay in milliseconds.
  uint64_t delay_ms;
  // VERDICT_REJECT: the reason, allocated with malloc.
  text_t reason;
} verdict_t;

// Charge an order. `attempt` is 1 the first time.
verdict_t order_handle(text_t body, uint32_t attempt);

// The delay after a failed attempt, in milliseconds.
uint64_t order_delay(uint32_t attempt);
