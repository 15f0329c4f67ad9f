// Status: how every fallible call of the engine says what happened.
//
// The engine throws no exceptions and never aborts on bad input or a lost peer: a failure is a
// value, with a code that callers branch on and a message for people ("what was received, from
// whom, what to do").
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace byteps {

// The values travel in frames (wire/frame.h): append only.
enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,     // the request itself is wrong: dtype, shape, size
  kFailedPrecondition = 2,  // right request, wrong state: not initialized, workers disagree
  kUnavailable = 3,         // a peer is lost or cannot be reached
  kDeadlineExceeded = 4,    // a wait ran out of its time
  kCancelled = 5,           // the engine is shutting down
  kResourceExhausted = 6,   // memory, descriptors or a limit
  kInternal = 7,            // a fault of ours
};

// For example "UNAVAILABLE".
const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "UNAVAILABLE: server 1 at 10.0.0.2:4711 closed the connection".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
Status InvalidArgument(std::string message);
Status FailedPrecondition(std::string message);
Status Unavailable(std::string message);
Status DeadlineExceeded(std::string message);
Status Cancelled(std::string message);
Status ResourceExhausted(std::string message);
Status Internal(std::string message);

// The current errno in words: "connect: Connection refused (111)".
std::string ErrnoMessage(const std::string& what);

}  // namespace byteps

// Returns from the enclosing function when `expression` is not OK.
#define BYTEPS_RETURN_IF_ERROR(expression)           \
  do {                                               \
    ::byteps::Status byteps_status_ = (expression);  \
    if (!byteps_status_.ok()) return byteps_status_; \
  } while (false)
