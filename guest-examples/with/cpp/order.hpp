// Reads orders. This file does not depend on WebAssembly, so `make test` runs it directly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace order {

struct Order {
  std::string id;
  std::string customer;
  std::uint32_t cents;

  // What others get to know about the order. Its names need no escapes.
  std::string json() const;
};

// Why the message is dropped.
struct Reject {
  std::string reason;
};

// Read an order.
std::variant<Order, Reject> read(std::string_view body);

}  // namespace order
