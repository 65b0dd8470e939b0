#include "order.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>

extern "C" {
#include "json.h"
}

namespace order {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

// The longest delay between two attempts.
constexpr auto delay_max = 10s;

struct Order {
  std::string id;
  double amount;
  std::string currency;
  std::string status;
  // What to simulate: `payment-timeout`, `random` or `crash`.
  std::string simulate;
  // How many attempts fail with `payment-timeout`.
  std::uint32_t failures;
};

std::string text(json_t value) {
  if (value.kind != JSON_STRING)
    return {value.raw.at, value.raw.length};
  std::string text(value.raw.length, '\0');
  text.resize(json_unescape(value, text.data()));
  return text;
}

// `XADD orders * id 1 amount 5` arrives as {"id":"1","amount":"5"}, so text and numbers are accepted.
std::optional<std::string> text_or_number(json_t object, const char *name) {
  json_t value = json_field(object, name);
  if (value.kind != JSON_STRING && value.kind != JSON_NUMBER)
    return {};
  return text(value);
}

std::optional<double> number(const std::string &text) {
  json_t value;
  if (!json_parse({text.data(), text.size()}, &value) || value.kind != JSON_NUMBER)
    return {};
  double read = std::strtod(text.c_str(), nullptr);
  if (!std::isfinite(read))
    return {};
  return read;
}

std::optional<std::string> optional_text(json_t object, const char *name, std::string fallback) {
  json_t value = json_field(object, name);
  switch (value.kind) {
  case JSON_STRING:
    return text(value);
  case JSON_NONE:
  case JSON_NULL:
    return fallback;
  default:
    return {};
  }
}

std::optional<std::uint32_t> count(json_t object, const char *name, std::uint32_t fallback) {
  json_t value = json_field(object, name);
  if (value.kind == JSON_NONE)
    return fallback;
  auto read = value.kind == JSON_NUMBER ? number(text(value)) : std::nullopt;
  if (!read || *read < 0 || *read > std::numeric_limits<std::uint32_t>::max() || *read != std::floor(*read))
    return {};
  return static_cast<std::uint32_t>(*read);
}

std::optional<Order> parse(std::string_view body) {
  json_t object;
  if (!json_parse({body.data(), body.size()}, &object) || object.kind != JSON_OBJECT)
    return {};
  auto id = text_or_number(object, "id");
  auto amount_text = text_or_number(object, "amount");
  auto amount = amount_text ? number(*amount_text) : std::nullopt;
  auto currency = optional_text(object, "currency", "EUR");
  auto status = optional_text(object, "status", "");
  auto simulate = optional_text(object, "simulate", "");
  auto failures = count(object, "failures", 1);
  if (!id || id->empty() || !amount || !currency || !status || !simulate || !failures)
    return {};
  return Order{*id, *amount, *currency, *status, *simulate, *failures};
}

bool is_currency(std::string_view text) {
  return text.size() == 3 && std::ranges::all_of(text, [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

Verdict handle(std::string_view body, std::uint32_t attempt) {
  auto order = parse(body);
  if (!order)
    return Reject{"not an order"};
  auto reject = [&](const std::string &why) { return Reject{"order "s + order->id + ": " + why}; };
  if (!(order->amount > 0))
    return reject("nothing to charge");
  if (!is_currency(order->currency))
    return reject("`" + order->currency + "` is not a currency");
  if (order->status == "cancelled")
    return reject("it was cancelled");
  if (order->simulate == "payment-timeout" && attempt <= order->failures)
    return Again{delay(attempt)};
  // No other message gets this number. (`rand` and `mt19937` begin with the same number in each instance.)
  if (order->simulate == "random")
    return reject("drew " + std::to_string(std::random_device{}()));
  if (order->simulate == "crash") {
    // A bug that a second attempt does not cure. The host counts a failed attempt.
    std::fprintf(stderr, "order %s hit a bug\n", order->id.c_str());
    std::abort();
  }
  return Ack{};
}

// The delay doubles after every attempt.
std::chrono::milliseconds delay(std::uint32_t attempt) {
  auto doublings = std::clamp<std::uint32_t>(attempt, 1, 11) - 1;
  return std::min<std::chrono::milliseconds>(100ms * (1u << doublings), delay_max);
}

}  // namespace order
