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

static order_kind_t read(const char *body, order_t *order) {
  return order_read((text_t){body, strlen(body)}, order);
}

static void an_order_is_read_and_written(void) {
  order_t order;
  char json[ORDER_JSON_MAX];
  order_kind_t kind = read("{\"id\":\"o-1\",\"customer\":\"c-7\",\"cents\":4250,\"note\":\"x\"}", &order);
  check(kind == ORDER_GOOD, "it is an order", __LINE__);
  size_t length = order_json(&order, json);
  const char *want = "{\"order\":\"o-1\",\"customer\":\"c-7\",\"cents\":4250}";
  check(length == strlen(want) && !strcmp(json, want), json, __LINE__);
}

static void other_bodies_are_no_orders(void) {
  order_t order;
  const char *bodies[] = {
      "",
      "hello",
      "[]",
      "{\"id\":\"o-1\",\"cents\":1}",
      "{\"id\":\"\",\"customer\":\"c\",\"cents\":1}",
      "{\"id\":\"o 1\",\"customer\":\"c\",\"cents\":1}",
      "{\"id\":\"o\",\"customer\":\"c\",\"cents\":-1}",
      "{\"id\":\"o\",\"customer\":\"c\",\"cents\":4294967296}",
      "{\"id\":\"o\",\"customer\":\"c\",\"cents\":1.5}",
  };
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
    check(read(bodies[i], &order) == ORDER_NONE, bodies[i], __LINE__);
  const char *free_of_charge = "{\"id\":\"o\",\"customer\":\"c\",\"cents\":0}";
  check(read(free_of_charge, &order) == ORDER_NOTHING_TO_CHARGE, free_of_charge, __LINE__);
}

int main(void) {
  an_order_is_read_and_written();
  other_bodies_are_no_orders();
  printf("%d passed, %d failed\n", checks - failures, failures);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
