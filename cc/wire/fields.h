// The fields of a message, listed once: what is written in an order is read in the same.
//
// A message lists its fields in a function of its own, which both directions call:
//
//   template <typename Archive>
//   void Fields(Archive& archive, typename Archive::template Of<Goodbye>& message) {
//     archive(message.ranks);
//   }
//
// Numbers and enums are little-endian, a bool is one byte. A string or a vector begins with its
// length in four bytes. Not thread-safe, nothing blocks.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/wire/bytes.h"

namespace byteps {

// Texts for people may be longer; they are cut here.
inline constexpr size_t kMaxTextBytes = 16384;

class FieldWriter {
 public:
  template <typename T>
  using Of = const T;

  explicit FieldWriter(ByteWriter* writer) : writer_(*writer) {}

  template <typename... T>
  void operator()(const T&... fields) {
    (Put(fields), ...);
  }
  // A string that must not be cut: longer ones than `max_bytes` are refused when they are read.
  void Name(const std::string& text, size_t max_bytes) {
    (void)max_bytes;
    writer_.PutString(text);
  }
  // What a message must fulfil. Checked when it is read.
  void Check(bool is_valid) { (void)is_valid; }

 private:
  template <typename T>
  void Put(const T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      writer_.Put(static_cast<uint8_t>(field));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      writer_.Put(field);
    } else {
      Fields(*this, field);
    }
  }
  void Put(const std::string& text) { writer_.PutString(text.substr(0, kMaxTextBytes)); }
  void Put(const Status& status) { (*this)(status.code(), status.message()); }
  template <typename T>
  void Put(const std::vector<T>& all) {
    writer_.Put(static_cast<uint32_t>(all.size()));
    for (const T& each : all) Put(each);
  }

  ByteWriter& writer_;
};

// The least bytes that a thing takes: those of one without any text, by which counts are checked.
template <typename T>
size_t LeastBytes() {
  ByteWriter writer;
  FieldWriter archive(&writer);
  archive(T{});
  return writer.Take().size();
}

class FieldReader {
 public:
  template <typename T>
  using Of = T;

  explicit FieldReader(ByteReader* reader) : reader_(*reader) {}

  template <typename... T>
  void operator()(T&... fields) {
    (Get(&fields), ...);
  }
  void Name(std::string& text, size_t max_bytes) { text = reader_.GetString(max_bytes); }
  void Check(bool is_valid) {
    if (!is_valid) reader_.Fail();
  }

 private:
  template <typename T>
  void Get(T* field) {
    if constexpr (std::is_same_v<T, bool>) {
      *field = reader_.Get<uint8_t>() != 0;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      *field = reader_.Get<T>();
    } else {
      Fields(*this, *field);
    }
  }
  void Get(std::string* text) { *text = reader_.GetString(kMaxTextBytes); }
  void Get(Status* status) {
    const StatusCode code = reader_.Get<StatusCode>();
    std::string message = reader_.GetString(kMaxTextBytes);
    Check(code <= StatusCode::kInternal);
    *status = code == StatusCode::kOk ? OkStatus() : Status(code, std::move(message));
  }
  // One by one, since a thing may be larger here than on the wire: a malformed message ends before
  // there are many.
  template <typename T>
  void Get(std::vector<T>* all) {
    static const size_t least = LeastBytes<T>();
    all->clear();
    for (uint32_t left = reader_.GetCount(least); left > 0 && reader_.ok(); --left) {
      Get(&all->emplace_back());
    }
  }

  ByteReader& reader_;
};

}  // namespace byteps
