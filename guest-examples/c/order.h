// What happens to an order. Nothing here knows WebAssembly: `make test` runs it as it is.
#pragma once

#include <stdint.h>

#include "json.h"

typedef enum { VERDICT_ACK, VERDICT_AGAIN, VERDICT_REJECT } verdict_kind_t;

typedef struct {
  verdict_kind_t kind;
  // VERDICT_AGAIN: after how many milliseconds.
  uint64_t delay_ms;
  // VERDICT_REJECT: why, allocated with malloc.
  text_t reason;
} verdict_t;

// Charge an order. `attempt` is 1 the first time.
verdict_t order_handle(text_t body, uint32_t attempt);

// How long to wait after an attempt that failed, in milliseconds.
uint64_t order_delay(uint32_t attempt);
