#include "cc/base/status.h"

#include <cerrno>
#include <cstring>

namespace byteps {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "OK";
    case StatusCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case StatusCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case StatusCode::kUnavailable: return "UNAVAILABLE";
    case StatusCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case StatusCode::kCancelled: return "CANCELLED";
    case StatusCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case StatusCode::kInternal: return "INTERNAL";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  return ok() ? "OK" : std::string(StatusCodeName(code_)) + ": " + message_;
}

Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
Status FailedPrecondition(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
Status Unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
Status DeadlineExceeded(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}
Status Cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
Status ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

std::string ErrnoMessage(const std::string& what) {
  const int number = errno;
  return what + ": " + std::strerror(number) + " (errno " + std::to_string(number) + ")";
}

}  // namespace byteps
