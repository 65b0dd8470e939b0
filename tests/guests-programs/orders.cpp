// The orders example as a program. order.cpp decides.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "order.hpp"

namespace {

constexpr int try_again = 75;
constexpr int drop = 65;

std::string input() {
    std::string body;
    char part[1 << 12];
    while (std::size_t length = std::fread(part, 1, sizeof part, stdin))
        body.append(part, length);
    return body;
}

void write(std::FILE *file, const std::string &line) {
    std::fwrite(line.data(), 1, line.size(), file);
    std::fputc('\n', file);
}

}  // namespace

int main() {
    std::string number = std::getenv("HOSTLER_ATTEMPT");
    auto verdict = order::handle(input(), static_cast<std::uint32_t>(std::strtoul(number.c_str(), nullptr, 10)));
    std::string begin = "attempt " + number + ": ";
    if (auto *again = std::get_if<order::Again>(&verdict)) {
        write(stdout, begin + "payment timed out, again in " + std::to_string(again->delay.count()) + " ms");
        return try_again;
    }
    if (auto *reject = std::get_if<order::Reject>(&verdict)) {
        write(stdout, begin + reject->reason);
        write(stderr, reject->reason);
        return drop;
    }
    write(stdout, begin + "charged");
}
