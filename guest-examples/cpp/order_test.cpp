// The tests. The program prints each failure.

#include "order.hpp"

#include <cstdio>
#include <cstdlib>
#include <source_location>

using namespace std::chrono_literals;
using namespace std::string_view_literals;
using order::Ack, order::Again, order::handle, order::Reject, order::Verdict;

namespace {

int checks, failures;

void check(bool good, std::source_location place = std::source_location::current()) {
  checks++;
  if (good)
    return;
  failures++;
  std::fprintf(stderr, "%s:%u: %s failed\n", place.file_name(), unsigned(place.line()), place.function_name());
}

void good_orders_are_acked() {
  check(handle(R"({"id":"o-1","amount":42.5,"currency":"EUR","status":"paid"})", 1) == Verdict(Ack{}));
  // All fields of a stream entry are text.
  check(handle(R"({"id":"1","amount":"5"})", 1) == Verdict(Ack{}));
  check(handle(R"({"id":1,"amount":5})", 1) == Verdict(Ack{}));
}

void a_payment_that_times_out_is_tried_again_with_growing_delays() {
  auto body = R"({"id":"o-2","amount":1,"simulate":"payment-timeout","failures":3})";
  check(handle(body, 1) == Verdict(Again{100ms}));
  check(handle(body, 2) == Verdict(Again{200ms}));
  check(handle(body, 3) == Verdict(Again{400ms}));
  check(handle(body, 4) == Verdict(Ack{}));
  check(order::delay(~0u) == 10s);
}

void bodies_that_are_not_orders_are_dropped() {
  for (auto body : {""sv, "hello"sv, "[]"sv, "{}"sv, R"({"id":"o-3"})"sv, R"({"id":"","amount":1})"sv,
                    R"({"id":"o-3","amount":"five"})"sv, "{\"id\":\"\xff\",\"amount\":1}"sv})
    check(handle(body, 1) == Verdict(Reject{"not an order"}));
}

void orders_that_cannot_be_charged_are_dropped_with_a_reason() {
  check(handle(R"({"id":"o-4","amount":0})", 1) == Verdict(Reject{"order o-4: nothing to charge"}));
  check(handle(R"({"id":5,"amount":1,"status":"cancelled"})", 1) == Verdict(Reject{"order 5: it was cancelled"}));
  check(handle(R"({"id":"o-6","amount":1,"currency":"euros"})", 1) ==
        Verdict(Reject{"order o-6: `euros` is not a currency"}));
}

}  // namespace

int main() {
  good_orders_are_acked();
  a_payment_that_times_out_is_tried_again_with_growing_delays();
  bodies_that_are_not_orders_are_dropped();
  orders_that_cannot_be_charged_are_dropped_with_a_reason();
  std::printf("%d passed, %d failed\n", checks - failures, failures);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
