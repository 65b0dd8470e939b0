// Fails as the body says: {"fails": "divide", "n": 7}.

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/handler.h"

#define FUNCTION [[gnu::noinline]]

namespace {

// The same message in two functions, with another number in each order.
FUNCTION void price(long n) {
  std::fprintf(stderr, "order %ld hit a bug\n", n);
  std::abort();
}

FUNCTION void weight(long n) {
  std::fprintf(stderr, "order %ld hit a bug\n", n);
  std::abort();
}

FUNCTION long divide(long n) {
  volatile long zero = 0;
  return n / zero;
}

// The standard library throws. There are no exceptions here, so it ends the handler.
FUNCTION int look(long n) {
  std::vector<int> lines(3);
  return lines.at(n);
}

FUNCTION int search(long n) {
  std::vector<int> lines(4);
  return lines.at(n);
}

FUNCTION int convert(long n) {
  return std::stoi("x" + std::to_string(n));
}

FUNCTION void call(long n) {
  std::function<void(long)> charge;
  charge(n);
}

}  // namespace

extern "C" void exports_hostler_handler_message_handler_handle(
    exports_hostler_handler_message_handler_message_t *message,
    exports_hostler_handler_message_handler_outcome_t *ret) {
  std::string_view body(reinterpret_cast<const char *>(message->body.ptr), message->body.len);
  auto number = body.substr(body.rfind(' ') + 1);
  long n = 0;
  std::from_chars(number.data(), number.data() + number.size(), n);
  auto fails = [&](std::string_view name) { return body.find(name) != body.npos; };
  if (fails("\"price\""))
    price(n);
  if (fails("\"weight\""))
    weight(n);
  if (fails("\"divide\""))
    std::printf("%ld\n", divide(n));
  if (fails("\"look\""))
    std::printf("%d\n", look(n));
  if (fails("\"search\""))
    std::printf("%d\n", search(n));
  if (fails("\"convert\""))
    std::printf("%d\n", convert(n));
  if (fails("\"call\""))
    call(n);
  ret->tag = HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
  hostler_handler_types_message_free(message);
}
