// Decides about an order. This file does not depend on WebAssembly, so `make test` runs it directly.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace order {

struct Ack {
  bool operator==(const Ack &) const = default;
};

struct Again {
  std::chrono::milliseconds delay;
  bool operator==(const Again &) const = default;
};

struct Reject {
  std::string reason;
  bool operator==(const Reject &) const = default;
};

using Verdict = std::variant<Ack, Again, Reject>;

// Charge an order. `attempt` is 1 the first time.
Verdict handle(std::string_view body, std::uint32_t attempt);

// The delay after a failed attempt.
std::chrono::milliseconds delay(std::uint32_t attempt);

}  // namespace order
