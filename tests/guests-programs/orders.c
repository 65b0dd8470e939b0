// The orders example as a program. order.c decides.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "order.h"

enum { TRY_AGAIN = 75, DROP = 65 };

// All of stdin.
static text_t input(void) {
    size_t size = 1 << 16, length = 0;
    char *at = malloc(size);
    while (at && (length += fread(at + length, 1, size - length, stdin)) == size)
        at = realloc(at, size *= 2);
    if (!at)
        abort();
    return (text_t){at, length};
}

int main(void) {
    uint32_t attempt = (uint32_t)strtoul(getenv("HOSTLER_ATTEMPT"), NULL, 10);
    verdict_t verdict = order_handle(input(), attempt);
    printf("attempt %" PRIu32 ": ", attempt);
    switch (verdict.kind) {
    case VERDICT_ACK:
        puts("charged");
        return 0;
    case VERDICT_AGAIN:
        printf("payment timed out, again in %" PRIu64 " ms\n", verdict.delay_ms);
        return TRY_AGAIN;
    case VERDICT_REJECT:
        fwrite(verdict.reason.at, 1, verdict.reason.length, stdout);
        putchar('\n');
        fwrite(verdict.reason.at, 1, verdict.reason.length, stderr);
        return DROP;
    }
}
