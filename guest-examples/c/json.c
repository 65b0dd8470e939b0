#include "json.h"

#include <stdint.h>
#include <string.h>

// Deeper nesting is refused, because the stack is small.
#define DEPTH_MAX 64

typedef struct {
  const char *at;
  const char *end;
} reader_t;

static bool read_value(reader_t *reader, json_t *value, int depth);

static void skip_space(reader_t *reader) {
  while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at)
    reader->at++;
}

static bool take(reader_t *reader, char c) {
  if (reader->at == reader->end || *reader->at != c)
    return false;
  reader->at++;
  return true;
}

static bool take_word(reader_t *reader, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length))
    return false;
  reader->at += length;
  return true;
}

static size_t take_digits(reader_t *reader) {
  const char *from = reader->at;
  while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
    reader->at++;
  return reader->at - from;
}

static bool read_number(reader_t *reader) {
  take(reader, '-');
  if (!take(reader, '0') && !take_digits(reader))
    return false;
  if (take(reader, '.') && !take_digits(reader))
    return false;
  if (take(reader, 'e') || take(reader, 'E')) {
    if (!take(reader, '+'))
      take(reader, '-');
    return take_digits(reader);
  }
  return true;
}

static int hex(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

static bool take_unit(reader_t *reader, uint32_t *unit) {
  if (reader->end - reader->at < 4)
    return false;
  *unit = 0;
  for (int i = 0; i < 4; i++) {
    int digit = hex(*reader->at++);
    if (digit < 0)
      return false;
    *unit = *unit << 4 | (uint32_t)digit;
  }
  return true;
}

// Reads the character after `\u`: one unit, or a pair of surrogates.
static bool take_character(reader_t *reader, uint32_t *character) {
  if (!take_unit(reader, character))
    return false;
  if (*character < 0xD800 || *character > 0xDFFF)
    return true;
  uint32_t low;
  if (*character > 0xDBFF || !take_word(reader, "\\u") || !take_unit(reader, &low))
    return false;
  if (low < 0xDC00 || low > 0xDFFF)
    return false;
  *character = 0x10000 + ((*character - 0xD800) << 10) + (low - 0xDC00);
  return true;
}

static bool read_string(reader_t *reader) {
  if (!take(reader, '"'))
    return false;
  while (reader->at < reader->end) {
    unsigned char c = (unsigned char)*reader->at++;
    if (c == '"')
      return true;
    if (c < 0x20)
      return false;
    if (c != '\\')
      continue;
    uint32_t character;
    if (reader->at == reader->end)
      return false;
    char escape = *reader->at++;
    if (escape == 'u' ? !take_character(reader, &character) : !escape || !strchr("\"\\/bfnrt", escape))
      return false;
  }
  return false;
}

// Reads the content of brackets: values, or names with values.
static bool read_members(reader_t *reader, char close, int depth) {
  json_t member;
  if (depth == DEPTH_MAX)
    return false;
  skip_space(reader);
  if (take(reader, close))
    return true;
  do {
    skip_space(reader);
    if (close == '}') {
      if (!read_string(reader))
        return false;
      skip_space(reader);
      if (!take(reader, ':'))
        return false;
    }
    if (!read_value(reader, &member, depth + 1))
      return false;
    skip_space(reader);
  } while (take(reader, ','));
  return take(reader, close);
}

static bool read_value(reader_t *reader, json_t *value, int depth) {
  skip_space(reader);
  const char *from = reader->at;
  bool good = false;
  value->kind = JSON_NONE;
  if (from == reader->end)
    return false;
  switch (*from) {
  case '{':
    reader->at++;
    value->kind = JSON_OBJECT;
    good = read_members(reader, '}', depth);
    break;
  case '[':
    reader->at++;
    value->kind = JSON_ARRAY;
    good = read_members(reader, ']', depth);
    break;
  case '"':
    value->kind = JSON_STRING;
    good = read_string(reader);
    break;
  case 't':
  case 'f':
    value->kind = JSON_BOOL;
    good = take_word(reader, "true") || take_word(reader, "false");
    break;
  case 'n':
    value->kind = JSON_NULL;
    good = take_word(reader, "null");
    break;
  default:
    value->kind = JSON_NUMBER;
    good = read_number(reader);
  }
  value->raw = (text_t){from, (size_t)(reader->at - from)};
  return good;
}

static bool is_utf8(text_t text) {
  const unsigned char *at = (const unsigned char *)text.at, *end = at + text.length;
  while (at < end) {
    unsigned char first = *at++;
    if (first < 0x80)
      continue;
    int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - at < more)
      return false;
    // The second byte shows an overlong form, a surrogate, or a character out of range.
    unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (*at < low || *at > high)
      return false;
    for (int i = 1; i < more; i++)
      if (at[i] < 0x80 || at[i] > 0xBF)
        return false;
    at += more;
  }
  return true;
}

bool json_parse(text_t text, json_t *value) {
  reader_t reader = {text.at, text.at + text.length};
  if (!is_utf8(text) || !read_value(&reader, value, 0))
    return false;
  skip_space(&reader);
  return reader.at == reader.end;
}

json_t json_field(json_t object, const char *name) {
  reader_t reader = {object.raw.at + 1, object.raw.at + object.raw.length};
  json_t found = {0}, value;
  skip_space(&reader);
  if (take(&reader, '}'))
    return found;
  // The object was checked before, so reading cannot fail.
  do {
    skip_space(&reader);
    json_t key = {JSON_STRING, {reader.at, 0}};
    read_string(&reader);
    key.raw.length = reader.at - key.raw.at;
    skip_space(&reader);
    take(&reader, ':');
    read_value(&reader, &value, 0);
    skip_space(&reader);
    if (key.raw.length == strlen(name) + 2 && !memcmp(key.raw.at + 1, name, strlen(name)))
      found = value;
  } while (take(&reader, ','));
  return found;
}

static char *put_utf8(char *out, uint32_t character) {
  if (character < 0x80) {
    *out++ = (char)character;
  } else if (character < 0x800) {
    *out++ = (char)(0xC0 | character >> 6);
    *out++ = (char)(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    *out++ = (char)(0xE0 | character >> 12);
    *out++ = (char)(0x80 | (character >> 6 & 0x3F));
    *out++ = (char)(0x80 | (character & 0x3F));
  } else {
    *out++ = (char)(0xF0 | character >> 18);
    *out++ = (char)(0x80 | (character >> 12 & 0x3F));
    *out++ = (char)(0x80 | (character >> 6 & 0x3F));
    *out++ = (char)(0x80 | (character & 0x3F));
  }
  return out;
}

size_t json_unescape(json_t string, char *out) {
  reader_t reader = {string.raw.at + 1, string.raw.at + string.raw.length - 1};
  char *to = out;
  while (reader.at < reader.end) {
    char c = *reader.at++;
    if (c != '\\') {
      *to++ = c;
      continue;
    }
    char escape = *reader.at++;
    uint32_t character;
    if (escape == 'u') {
      take_character(&reader, &character);
      to = put_utf8(to, character);
    } else {
      const char *names = "bfnrt", *name = strchr(names, escape);
      *to++ = name ? "\b\f\n\r\t"[name - names] : escape;
    }
  }
  return (size_t)(to - out);
}
