// A bounded JSON reader: whatever the file holds, memory is limited and errors name file, line, column and field.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "failure.hpp"

namespace socsched {

const char* const HINT = "write the file again with the program that made it";

// The length of the UTF-8 sequence at `text`, 0 if there is no valid one.
inline size_t sequence_length(const unsigned char* text, size_t left) {
  const unsigned char first = text[0];
  const size_t length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || length > left) return 0;
  for (size_t i = 1; i < length; i++)
    if ((text[i] & 0xC0) != 0x80) return 0;
  if ((first == 0xE0 && text[1] < 0xA0) || (first == 0xED && text[1] > 0x9F)) return 0;
  if ((first == 0xF0 && text[1] < 0x90) || (first == 0xF4 && text[1] > 0x8F)) return 0;
  return length;
}

inline void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 63));
    out += static_cast<char>(0x80 | (code & 63));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 63));
    out += static_cast<char>(0x80 | (code >> 6 & 63));
    out += static_cast<char>(0x80 | (code & 63));
  }
}

constexpr size_t LONGEST = 4000;  // characters of a name or path

struct JsonValue {
  enum class Kind : uint8_t { null, boolean, integer, real, text, list, object };

  Kind kind = Kind::null;
  uint32_t at = 0;  // offset in the file, for error messages
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<JsonValue> items;         // of a list, or the values of an object
  std::vector<std::string> names;       // of an object's values
};

// FILE:LINE:COLUMN of an offset in a text.
inline std::string position_in(const std::string& name, const std::string& content, size_t at) {
  const size_t end = std::min(at, content.size());
  const auto begin = content.begin();
  const auto line = std::count(begin, begin + static_cast<std::ptrdiff_t>(end), '\n') + 1;
  const size_t before = end ? content.rfind('\n', end - 1) : std::string::npos;
  const size_t column = end - (before == std::string::npos ? 0 : before + 1) + 1;
  return name + ":" + std::to_string(line) + ":" + std::to_string(column);
}

class JsonParser {
 public:
  static constexpr size_t MOST_VALUES = 2'000'000, MOST_DEPTH = 64;

  JsonParser(const std::string& name, const std::string& text) : name_(name), text_(text) {}

  JsonValue parse() {
    JsonValue root;
    value(root, 0);
    blanks();
    if (at_ != text_.size()) fail("expected the end of the file");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw Failure(USAGE, position_in(name_, text_, at_) + ": not valid JSON: " + expected, HINT);
  }

  void blanks() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_]) at_++;
  }

  bool take(char wanted) {
    blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    at_++;
    return true;
  }

  void value(JsonValue& out, size_t depth) {
    if (depth > MOST_DEPTH) fail("nested more than 64 levels deep");
    if (++count_ > MOST_VALUES) fail("more than 2,000,000 values");
    blanks();
    out.at = static_cast<uint32_t>(at_);
    if (at_ == text_.size()) fail("expected a value, got the end of the file");
    switch (text_[at_]) {
      case '{': return object(out, depth);
      case '[': return list(out, depth);
      case '"': out.kind = JsonValue::Kind::text; out.text = string(); return;
      case 't': return word("true", out, JsonValue::Kind::boolean, 1);
      case 'f': return word("false", out, JsonValue::Kind::boolean, 0);
      case 'n': return word("null", out, JsonValue::Kind::null, 0);
      default: return number(out);
    }
  }

  void word(const char* wanted, JsonValue& out, JsonValue::Kind kind, int64_t value) {
    const size_t length = std::strlen(wanted);
    if (text_.compare(at_, length, wanted) != 0) fail("expected a value");
    at_ += length;
    out.kind = kind;
    out.integer = value;
  }

  void number(JsonValue& out) {
    const size_t start = at_;
    bool whole = true;
    if (at_ < text_.size() && text_[at_] == '-') at_++;
    const size_t first = at_;
    while (at_ < text_.size() && text_[at_] && std::strchr("0123456789.eE+-", text_[at_])) {
      whole &= text_[at_] >= '0' && text_[at_] <= '9';
      at_++;
    }
    if (at_ == first || text_[first] < '0' || text_[first] > '9' || (text_[first] == '0' && whole && at_ > first + 1)) {
      at_ = start;
      fail("expected a value");
    }
    const std::string digits = text_.substr(start, std::min<size_t>(at_ - start, 400));
    char* end = nullptr;
    errno = 0;
    out.real = std::strtod(digits.c_str(), &end);
    if (*end || at_ - start > 400 || !std::isfinite(out.real)) {
      at_ = start;
      fail("expected a finite number");
    }
    out.kind = JsonValue::Kind::real;
    if (whole) {
      errno = 0;
      out.integer = std::strtoll(digits.c_str(), &end, 10);
      if (errno == 0) out.kind = JsonValue::Kind::integer;
    }
  }

  uint32_t hex() {
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, at_++) {
      const char c = at_ < text_.size() ? text_[at_] : 0;
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) fail("expected four hexadecimal digits");
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }

  std::string string() {
    std::string out;
    at_++;
    while (true) {
      if (at_ == text_.size()) fail("a text without its closing quote");
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') return at_++, out;
      if (c < 0x20) fail("a control character in a text");
      if (c != '\\') {
        const size_t length = sequence_length(reinterpret_cast<const unsigned char*>(&text_[at_]), text_.size() - at_);
        if (length == 0) fail("not UTF-8");
        out.append(text_, at_, length);
        at_ += length;
        continue;
      }
      at_++;
      const char escape = at_ < text_.size() ? text_[at_++] : 0;
      const char* const plain = std::strchr("\"\"\\\\//b\bf\fn\nr\rt\t", escape);
      if (escape == 'u') {
        uint32_t code = hex();
        if (code >= 0xD800 && code < 0xDC00) {
          if (text_.compare(at_, 2, "\\u") != 0) fail("half of a surrogate pair");
          at_ += 2;
          const uint32_t low = hex();
          if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else if (code >= 0xDC00 && code <= 0xDFFF) {
          fail("half of a surrogate pair");
        }
        append_utf8(out, code);
      } else if (escape && plain && (plain - "\"\"\\\\//b\bf\fn\nr\rt\t") % 2 == 0) {
        out += plain[1];
      } else {
        fail("an unknown escape in a text");
      }
    }
  }

  void list(JsonValue& out, size_t depth) {
    out.kind = JsonValue::Kind::list;
    at_++;
    if (take(']')) return;
    do {
      out.items.emplace_back();
      value(out.items.back(), depth + 1);
    } while (take(','));
    if (!take(']')) fail("expected , or ]");
  }

  void object(JsonValue& out, size_t depth) {
    out.kind = JsonValue::Kind::object;
    at_++;
    if (take('}')) return;
    std::unordered_set<std::string> seen;
    do {
      blanks();
      if (at_ == text_.size() || text_[at_] != '"') fail("expected the name of a field");
      const size_t start = at_;
      std::string name = string();
      if (!seen.insert(name).second) {
        at_ = start;
        fail("a field that is there twice");
      }
      if (!take(':')) fail("expected :");
      out.names.push_back(std::move(name));
      out.items.emplace_back();
      value(out.items.back(), depth + 1);
    } while (take(','));
    if (!take('}')) fail("expected , or }");
  }

  const std::string &name_, &text_;
  size_t at_ = 0, count_ = 0;
};

class JsonFile;

// A value together with its path in the file; all accessors throw Failure with its position if it is not as expected.
class JsonField {
 public:
  JsonField(const JsonFile& file, const JsonValue& value, std::string path)
      : file_(&file), value_(&value), path_(std::move(path)) {}

  // A field that must be there.
  JsonField operator[](const char* name) const {
    if (value_->kind != JsonValue::Kind::object) fail("expected an object");
    const std::string path = path_.empty() ? name : path_ + "." + name;
    for (size_t i = 0; i < value_->names.size(); i++)
      if (value_->names[i] == name) return {*file_, value_->items[i], path};
    JsonField(*file_, *value_, path).fail("this field is missing");
  }

  // Whether an object has a field.
  bool has(const char* name) const {
    if (value_->kind != JsonValue::Kind::object) fail("expected an object");
    return std::find(value_->names.begin(), value_->names.end(), name) != value_->names.end();
  }

  // The entries of a list.
  std::vector<JsonField> items(size_t most) const {
    if (value_->kind != JsonValue::Kind::list) fail("expected a list");
    if (value_->items.size() > most) fail("expected at most " + std::to_string(most) + " entries");
    std::vector<JsonField> found;
    for (size_t i = 0; i < value_->items.size(); i++)
      found.emplace_back(*file_, value_->items[i], path_ + "[" + std::to_string(i) + "]");
    return found;
  }

  // The entries of an object.
  std::vector<std::pair<std::string, JsonField>> fields(size_t most) const {
    if (value_->kind != JsonValue::Kind::object) fail("expected an object");
    if (value_->items.size() > most) fail("expected at most " + std::to_string(most) + " entries");
    std::vector<std::pair<std::string, JsonField>> found;
    for (size_t i = 0; i < value_->items.size(); i++)
      found.emplace_back(value_->names[i], JsonField(*file_, value_->items[i], path_ + "." + value_->names[i]));
    return found;
  }

  int64_t integer(int64_t least, int64_t most) const {
    if (value_->kind != JsonValue::Kind::integer || value_->integer < least || value_->integer > most)
      fail("expected a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return value_->integer;
  }

  bool boolean() const {
    if (value_->kind != JsonValue::Kind::boolean) fail("expected true or false");
    return value_->integer != 0;
  }

  const std::string& text(size_t most) const {
    if (value_->kind != JsonValue::Kind::text) fail("expected text");
    if (value_->text.size() > most) fail("expected at most " + std::to_string(most) + " bytes");
    return value_->text;
  }

  std::string one_of(const std::vector<std::string>& known) const {
    const std::string& found = text(4000);
    if (std::find(known.begin(), known.end(), found) != known.end()) return found;
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    fail("expected one of " + names);
  }

  std::vector<std::string> texts(size_t most_items, size_t most_length) const {
    std::vector<std::string> found;
    for (const JsonField& item : items(most_items)) found.push_back(item.text(most_length));
    return found;
  }

  [[noreturn]] void fail(const std::string& expected) const;

 private:
  const JsonFile* file_;
  const JsonValue* value_;
  std::string path_;
};

class JsonFile {
 public:
  static constexpr size_t MOST_BYTES = size_t{64} << 20;

  // Reads the file.
  explicit JsonFile(const std::string& path) : name_(path) {
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    if (!file) throw Failure(USAGE, path + ": cannot be read: " + std::strerror(errno), HINT);
    char part[65536];
    size_t got;
    while ((got = std::fread(part, 1, sizeof part, file)) > 0 && content_.size() <= MOST_BYTES) content_.append(part, got);
    const bool failed = std::ferror(file) != 0;
    const int reason = errno;
    std::fclose(file);
    if (failed) throw Failure(USAGE, path + ": cannot be read: " + std::strerror(reason), HINT);
    if (content_.size() > MOST_BYTES) throw Failure(USAGE, path + ": larger than 64 MiB", HINT);
    root_ = JsonParser(name_, content_).parse();
  }

  // Parses a text.
  JsonFile(std::string name, std::string content) : name_(std::move(name)), content_(std::move(content)) {
    root_ = JsonParser(name_, content_).parse();
  }

  JsonField root() const { return {*this, root_, ""}; }

 private:
  friend class JsonField;
  std::string name_, content_;
  JsonValue root_;
};

inline void JsonField::fail(const std::string& expected) const {
  throw Failure(USAGE, position_in(file_->name_, file_->content_, value_->at) + ": " + (path_.empty() ? "the file" : path_) + ": " + expected, HINT);
}

// Append a number, or text as a JSON string.
inline void add_number(std::string& out, int64_t number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

inline void append_json(std::string& out, const std::string& text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace socsched
