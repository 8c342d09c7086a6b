// A bounded JSON reader: whatever the file holds, memory is limited and errors name file, line, column and field.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace socsched {

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

class JsonFile;

// A value together with its path in the file; all accessors throw Failure with its position if it is not as expected.
class JsonField {
 public:
  JsonField(const JsonFile& file, const JsonValue& value, std::string path)
      : file_(&file), value_(&value), path_(std::move(path)) {}

  JsonField operator[](const char* name) const;              // a field that must be there
  bool has(const char* name) const;                          // whether an object has a field
  std::vector<JsonField> items(size_t most) const;           // the entries of a list
  std::vector<std::pair<std::string, JsonField>> fields(size_t most) const;  // the entries of an object
  int64_t integer(int64_t least, int64_t most) const;
  bool boolean() const;
  const std::string& text(size_t most) const;
  std::string one_of(const std::vector<std::string>& known) const;
  std::vector<std::string> texts(size_t most_items, size_t most_length) const;
  [[noreturn]] void fail(const std::string& expected) const;

 private:
  const JsonFile* file_;
  const JsonValue* value_;
  std::string path_;
};

class JsonFile {
 public:
  static constexpr size_t MOST_BYTES = size_t{64} << 20, MOST_VALUES = 2'000'000, MOST_DEPTH = 64;

  explicit JsonFile(const std::string& path);                  // reads the file
  JsonFile(std::string name, std::string content);             // parses a text
  JsonField root() const { return {*this, root_, ""}; }
  std::string position(size_t at) const;                       // FILE:LINE:COLUMN

 private:
  friend class JsonParser;
  std::string name_, content_;
  JsonValue root_;
};

// Append a number, or text as a JSON string.
void add_number(std::string& out, int64_t number);
void append_json(std::string& out, const std::string& text);

}  // namespace socsched
