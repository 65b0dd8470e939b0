// What happens to an order. Nothing here knows WebAssembly: `make test` runs it as it is.
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

// How long to wait after an attempt that failed.
std::chrono::milliseconds delay(std::uint32_t attempt);

}  // namespace order
