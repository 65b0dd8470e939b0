// A program as a handler: reads an order like `A-1 250`, and writes its invoice to stdout.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRY_AGAIN = 75, DROP = 65 };

static void end(int code, const char *reason) {
    fprintf(stderr, "%s\n", reason);
    exit(code);
}

int main(void) {
    char body[512];
    size_t length = fread(body, 1, sizeof body - 1, stdin);
    body[length] = '\0';
    char id[256], amount[256], more[2];
    if (sscanf(body, "%255s %255s %1s", id, amount, more) != 2) {
        end(DROP, "not an order: it needs an id and an amount");
    }
    if (strcmp(amount, "crash") == 0) {
        fprintf(stderr, "a bug in order %s\n", id);
        abort();
    }
    char *rest;
    unsigned long cents = strtoul(amount, &rest, 10);
    if (*rest != '\0') {
        end(DROP, "not an order: the amount is not a number");
    }
    if (cents == 0) {
        fprintf(stderr, "order %s has no amount yet\n", id);
        return TRY_AGAIN;
    }
    printf("invoice %s %lu\n", id, cents);
    return 0;
}
