// A program as a handler: reads an order like `A-1 250`, and writes its invoice to stdout.

#include <charconv>
#include <cstdlib>
#include <iostream>
#include <string>

namespace {
constexpr int try_again = 75;
constexpr int drop = 65;

int end(int code, const std::string &reason) {
    std::cerr << reason << std::endl;
    return code;
}
} // namespace

int main() {
    std::string id, amount, more;
    if (!(std::cin >> id >> amount) || std::cin >> more) {
        return end(drop, "not an order: it needs an id and an amount");
    }
    if (amount == "crash") {
        std::cerr << "a bug in order " << id << std::endl;
        std::abort();
    }
    unsigned cents = 0;
    const char *last = amount.data() + amount.size();
    auto [rest, error] = std::from_chars(amount.data(), last, cents);
    if (error != std::errc{} || rest != last) {
        return end(drop, "not an order: the amount is not a number");
    }
    if (cents == 0) {
        return end(try_again, "order " + id + " has no amount yet");
    }
    std::cout << "invoice " << id << ' ' << cents << std::endl;
    return 0;
}
