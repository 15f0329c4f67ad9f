#include "cc/base/logging.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "cc/base/clock.h"

namespace byteps {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kWarning};

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "?";
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

bool LogEnabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void Log(LogLevel level, const std::string& message) {
  if (!LogEnabled(level)) return;
  const int64_t now = WallNanos();
  const time_t seconds = now / 1000000000;
  tm local;
  localtime_r(&seconds, &local);
  char prefix[64];
  const size_t length = strftime(prefix, sizeof(prefix), "%Y-%m-%d %H:%M:%S", &local);
  char rest[48];
  snprintf(rest, sizeof(rest), ".%03d %s tf_byteps: ", static_cast<int>(now / 1000000 % 1000),
           LevelName(level));
  const std::string line = std::string(prefix, length) + rest + message + "\n";
  // One write, so that lines of several threads and processes do not mix. Nothing can be done if it
  // fails.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace byteps
