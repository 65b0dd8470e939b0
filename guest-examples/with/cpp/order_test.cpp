// The tests. The program prints each failure.

#include "order.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

int checks, failures;

void check(bool good, const char *what) {
  checks++;
  if (good)
    return;
  failures++;
  std::fprintf(stderr, "%s failed\n", what);
}

void an_order_is_read_and_written() {
  auto read = order::read(R"({"id":"o-1","customer":"c-7","cents":4250,"note":"x"})");
  auto *order = std::get_if<order::Order>(&read);
  check(order && order->json() == R"({"order":"o-1","customer":"c-7","cents":4250})", "an order");
}

void rejects(const char *body, const char *reason) {
  auto read = order::read(body);
  auto *reject = std::get_if<order::Reject>(&read);
  check(reject && reject->reason == reason, body);
}

void other_bodies_are_dropped_with_a_reason() {
  for (auto body : {"", "hello", "[]", R"({"id":"o-1","cents":1})", R"({"id":"o 1","customer":"c","cents":1})",
                    R"({"id":"o","customer":"c","cents":-1})", R"({"id":"o","customer":"c","cents":"1"})"})
    rejects(body, "not an order");
  rejects(R"({"id":"o","customer":"c","cents":0})", "order o: nothing to charge");
}

}  // namespace

int main() {
  an_order_is_read_and_written();
  other_bodies_are_dropped_with_a_reason();
  std::printf("%d passed, %d failed\n", checks - failures, failures);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
