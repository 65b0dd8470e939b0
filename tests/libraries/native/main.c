// Fails as the body says: {"fails": "divide", "n": 7}.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/handler.h"

#define FUNCTION static __attribute__((noinline))

// The same message in two functions, with another number in each order.
FUNCTION void price(long n) {
  fprintf(stderr, "order %ld hit a bug\n", n);
  abort();
}

FUNCTION void weight(long n) {
  fprintf(stderr, "order %ld hit a bug\n", n);
  abort();
}

// A library that ends the process, in two functions.
FUNCTION void leave(long n) {
  exit(n ? 3 : 0);
}

FUNCTION void quit(long n) {
  exit(n ? 3 : 1);
}

FUNCTION long divide(long n) {
  volatile long zero = 0;
  return n / zero;
}

// Behind the end of the memory.
FUNCTION long look(long n) {
  long *volatile lines = (long *)(UINTPTR_MAX - 65535);
  return lines[n];
}

FUNCTION void call(long n) {
  void (*volatile charge)(long) = NULL;
  charge(n);
}

void exports_hostler_handler_message_handler_handle(
    exports_hostler_handler_message_handler_message_t *message,
    exports_hostler_handler_message_handler_outcome_t *ret) {
  char name[16] = "";
  long n = 0;
  char body[64] = "";
  memcpy(body, message->body.ptr, message->body.len < 63 ? message->body.len : 63);
  sscanf(body, "{\"fails\": \"%15[a-z]\", \"n\": %ld", name, &n);
  if (!strcmp(name, "price"))
    price(n);
  if (!strcmp(name, "weight"))
    weight(n);
  if (!strcmp(name, "leave"))
    leave(n);
  if (!strcmp(name, "quit"))
    quit(n);
  if (!strcmp(name, "divide"))
    printf("%ld\n", divide(n));
  if (!strcmp(name, "look"))
    printf("%ld\n", look(n));
  if (!strcmp(name, "call"))
    call(n);
  ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
  hostler_handler_types_message_free(message);
}
