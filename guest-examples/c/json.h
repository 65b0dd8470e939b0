// Reads JSON without allocating: values are pieces of the text.
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct {
  const char *at;
  size_t length;
} text_t;

typedef enum { JSON_NONE, JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind_t;

// A value, as it stands in the text; a string with its quotes and escapes.
typedef struct {
  json_kind_t kind;
  text_t raw;
} json_t;

// Whether the whole text is one JSON value, in UTF-8; `value` is that value.
bool json_parse(text_t text, json_t *value);

// A field of an object: JSON_NONE if it has none of this name. The last of a repeated name wins.
json_t json_field(json_t object, const char *name);

// Write a string without quotes and escapes to `out`, which holds as many bytes as `string.raw`.
// Returns how many it wrote.
size_t json_unescape(json_t string, char *out);
