// Reading and writing little-endian values in byte strings, with bounds checked when they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace byteps {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the wire format is written for little-endian hosts");

class ByteWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutString(const std::string& value) {
    Put(static_cast<uint32_t>(value.size()));
    bytes_.append(value);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first failed read every further one fails and yields zeros: check ok() once, at the
// end.
class ByteReader {
 public:
  ByteReader(const void* data, size_t size) : next_(static_cast<const char*>(data)), left_(size) {}

  template <typename T>
  T Get() {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    T value{};
    if (Take(sizeof(T))) std::memcpy(&value, next_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string GetString(size_t max_bytes) {
    const uint32_t size = Get<uint32_t>();
    if (size > max_bytes || !Take(size)) {
      ok_ = false;
      return {};
    }
    return std::string(next_ - size, size);
  }
  // A count of things that take at least `min_bytes` each: fails when the rest cannot hold them.
  uint32_t GetCount(size_t min_bytes) {
    const uint32_t count = Get<uint32_t>();
    if (ok_ && count > left_ / min_bytes) ok_ = false;
    return ok_ ? count : 0;
  }
  void Fail() { ok_ = false; }
  bool ok() const { return ok_; }
  size_t left() const { return left_; }

 private:
  bool Take(size_t size) {
    if (!ok_ || size > left_) {
      ok_ = false;
      return false;
    }
    next_ += size;
    left_ -= size;
    return true;
  }

  const char* next_;
  size_t left_;
  bool ok_ = true;
};

}  // namespace byteps
