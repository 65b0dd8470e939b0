#include "order.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

extern "C" {
#include "json.h"
}

namespace order {

namespace {

std::string_view raw(json_t value) { return {value.raw.at, value.raw.length}; }

// A name can be a part of a key: 1 to 64 letters, digits and `-`.
std::optional<std::string> name(json_t object, const char *field) {
  auto value = json_field(object, field);
  if (value.kind != JSON_STRING || value.raw.length <= 2 || value.raw.length > 66)
    return {};
  auto text = raw(value).substr(1, value.raw.length - 2);
  bool plain = std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
  return plain ? std::optional(std::string(text)) : std::nullopt;
}

std::optional<std::uint32_t> cents(json_t object) {
  auto value = json_field(object, "cents");
  std::uint32_t number;
  auto text = raw(value);
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  bool whole = value.kind == JSON_NUMBER && error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace

std::variant<Order, Reject> read(std::string_view body) {
  json_t object;
  if (!json_parse({body.data(), body.size()}, &object) || object.kind != JSON_OBJECT)
    return Reject{"not an order"};
  auto id = name(object, "id");
  auto customer = name(object, "customer");
  auto number = cents(object);
  if (!id || !customer || !number)
    return Reject{"not an order"};
  if (*number == 0)
    return Reject{"order " + *id + ": nothing to charge"};
  return Order{*id, *customer, *number};
}

std::string Order::json() const {
  return R"({"order":")" + id + R"(","customer":")" + customer + R"(","cents":)" + std::to_string(cents) + "}";
}

}  // namespace order
