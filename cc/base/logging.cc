#include "cc/base/logging.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "cc/base/clock.h"
#include "cc/base/fork.h"

namespace byteps {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kWarning};

// Of lines for which there was no room.
constexpr size_t kMostWaitingBytes = 64 * 1024;

struct WaitingLines {
  std::mutex mutex;  // guards all below; held while writing, which does not wait
  std::string text;
  uint64_t left_out = 0;  // lines
  std::atomic<bool> is_empty{true};
};

WaitingLines& Waiting() {
  static WaitingLines* const waiting = [] {
    std::atexit(FlushLog);
    return new WaitingLines;  // outlives every thread
  }();
  return *waiting;
}

// A descriptor of its own for standard error, where that is a pipe or a terminal: others share the
// description of the one that there is, and may want it to wait.
int OpenWithoutWaiting() {
  return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

// How many bytes of the text standard error takes at once; all, if it takes none for ever.
size_t WriteSome(const char* text, size_t bytes) {
  struct stat file{};
  ssize_t written = -1;
  errno = EBADF;
  if (fstat(STDERR_FILENO, &file) != 0) return bytes;
  if (S_ISSOCK(file.st_mode)) {
    written = send(STDERR_FILENO, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  } else if (S_ISREG(file.st_mode)) {
    written = write(STDERR_FILENO, text, bytes);
  } else if (const int own = OpenWithoutWaiting(); own >= 0) {
    written = write(own, text, bytes);
    const int error = errno;
    close(own);
    errno = error;
  } else {
    // A pipe that can be written to has room for so much.
    constexpr size_t kRoom = 4096;
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (poll(&ready, 1, 0) == 0) return 0;
    written = write(STDERR_FILENO, text, std::min(bytes, kRoom));
  }
  if (written >= 0) return static_cast<size_t>(written);
  return errno == EAGAIN || errno == EINTR ? 0 : bytes;
}

// With the mutex held.
void WriteWaiting(WaitingLines* waiting) {
  while (!waiting->text.empty()) {
    const size_t written = WriteSome(waiting->text.data(), waiting->text.size());
    if (written == 0) break;
    waiting->text.erase(0, written);
  }
  if (waiting->text.empty() && waiting->left_out > 0) {
    waiting->text = "tf_byteps: " + std::to_string(waiting->left_out) +
                    " lines are left out here: nobody read the log\n";
    waiting->left_out = 0;
  }
  waiting->is_empty = waiting->text.empty();
}

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
  // The lock may have been held by a thread that a forked child does not have.
  if (!CheckNotForked().ok()) {
    WriteSome(line.data(), line.size());
    return;
  }
  WaitingLines& waiting = Waiting();
  std::lock_guard<std::mutex> lock(waiting.mutex);
  WriteWaiting(&waiting);
  if (waiting.text.size() + line.size() > kMostWaitingBytes) {
    ++waiting.left_out;
    return;
  }
  // One write, so that lines of several threads and processes do not mix.
  waiting.text += line;
  WriteWaiting(&waiting);
}

void FlushLog() {
  WaitingLines& waiting = Waiting();
  if (waiting.is_empty || !CheckNotForked().ok()) return;
  std::lock_guard<std::mutex> lock(waiting.mutex);
  WriteWaiting(&waiting);
}

}  // namespace byteps
