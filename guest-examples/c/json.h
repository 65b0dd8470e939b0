// Reads JSON without allocations: a value is a part of the text.
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct {
  const char *at;
  size_t length;
} text_t;

typedef enum { JSON_NONE, JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind_t;

// A value, as it is in the text. A string includes its quotes and escapes.
typedef struct {
  json_kind_t kind;
  text_t raw;
} json_t;

// Returns whether the whole text is one JSON value, in UTF-8. Sets `value` to that value.
bool json_parse(text_t text, json_t *value);

// Returns a field of an object, or JSON_NONE if no field has this name. If a name is repeated, the last one wins.
json_t json_field(json_t object, const char *name);

// Writes a string without quotes and escapes to `out`, which must have as many bytes as `string.raw`.
// Returns the number of bytes written.
size_t json_unescape(json_t string, char *out);
