// The tests. The program prints each failure.

#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, failures;

static void check(bool good, const char *what, int line) {
  checks++;
  if (good)
    return;
  failures++;
  fprintf(stderr, "order_test.c:%d: %s\n", line, what);
}
#define CHECK(what) check(what, #what, __LINE__)

static verdict_t handle(const char *body, uint32_t attempt) {
  return order_handle((text_t){body, strlen(body)}, attempt);
}

static bool rejects(const char *body, const char *reason) {
  verdict_t verdict = handle(body, 1);
  if (verdict.kind != VERDICT_REJECT)
    return false;
  bool same = verdict.reason.length == strlen(reason) && !memcmp(verdict.reason.at, reason, strlen(reason));
  free((char *)verdict.reason.at);
  return same;
}

static bool again(const char *body, uint32_t attempt, uint64_t delay_ms) {
  verdict_t verdict = handle(body, attempt);
  return verdict.kind == VERDICT_AGAIN && verdict.delay_ms == delay_ms;
}

static void good_orders_are_acked(void) {
  CHECK(handle("{\"id\":\"o-1\",\"amount\":42.5,\"currency\":\"EUR\",\"status\":\"paid\"}", 1).kind == VERDICT_ACK);
  // All fields of a stream entry are text.
  CHECK(handle("{\"id\":\"1\",\"amount\":\"5\"}", 1).kind == VERDICT_ACK);
  CHECK(handle(" { \"id\" : 1 , \"amount\" : 5e2, \"items\": [{}, [], [1, null, true, \"\\u00e9\"]] } ", 1).kind == VERDICT_ACK);
}

static void a_payment_that_times_out_is_tried_again_with_growing_delays(void) {
  const char *body = "{\"id\":\"o-2\",\"amount\":1,\"simulate\":\"payment-timeout\",\"failures\":3}";
  CHECK(again(body, 1, 100));
  CHECK(again(body, 2, 200));
  CHECK(again(body, 3, 400));
  CHECK(handle(body, 4).kind == VERDICT_ACK);
  CHECK(order_delay(UINT32_MAX) == 10000);
}

static void bodies_that_are_not_orders_are_dropped(void) {
  const char *bodies[] = {
      "", "hello", "[]", "7", "{", "{}", "{\"id\":\"o-3\"}", "{\"id\":\"\",\"amount\":1}",
      "{\"id\":\"o-3\",\"amount\":\"five\"}", "{\"id\":\"o-3\",\"amount\":NaN}", "{\"id\":\"o-3\",\"amount\":01}",
      "{\"id\":\"o-3\",\"amount\":1}}", "{\"id\":\"o-3\",\"amount\":1,}", "{\"id\":\"\\ud800\",\"amount\":1}",
      "{\"id\":\"\xff\",\"amount\":1}", "{\"id\":\"\xc0\x80\",\"amount\":1}", "{\"id\":\"o-3\",\"amount\":1,\"currency\":7}",
  };
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
    check(rejects(bodies[i], "not an order"), bodies[i], __LINE__);
}

static void orders_that_cannot_be_charged_are_dropped_with_a_reason(void) {
  CHECK(rejects("{\"id\":\"o-4\",\"amount\":0}", "order o-4: nothing to charge"));
  CHECK(rejects("{\"id\":5,\"amount\":1,\"status\":\"cancelled\"}", "order 5: it was cancelled"));
  CHECK(rejects("{\"id\":\"o-6\",\"amount\":1,\"currency\":\"euros\"}", "order o-6: `euros` is not a currency"));
  CHECK(rejects("{\"id\":\"\\ud83d\\ude00\\n\",\"amount\":-1}", "order \xF0\x9F\x98\x80\n: nothing to charge"));
}

int main(void) {
  good_orders_are_acked();
  a_payment_that_times_out_is_tried_again_with_growing_delays();
  bodies_that_are_not_orders_are_dropped();
  orders_that_cannot_be_charged_are_dropped_with_a_reason();
  printf("%d passed, %d failed\n", checks - failures, failures);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
