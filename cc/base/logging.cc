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
#include <memory>

#include "cc/base/clock.h"
#include "cc/base/event_record.h"
#include "cc/base/fork.h"
#include "cc/base/json.h"
#include "cc/base/mutex.h"

namespace byteps {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kWarning};

// Of lines for which there was no room.
constexpr size_t kMostWaitingBytes = 64 * 1024;

struct WaitingLines {
  Mutex mutex;  // held while writing, which does not wait
  std::string text BYTEPS_GUARDED_BY(mutex);
  uint64_t left_out BYTEPS_GUARDED_BY(mutex) = 0;  // lines
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

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "DEBUG";
    case LogLevel::kInfo: return "INFO";
    case LogLevel::kWarning: return "WARNING";
    case LogLevel::kError: return "ERROR";
  }
  return "?";
}

// "2026-01-31 12:00:00.123", or in UTC with a T and a Z.
std::string TimeNow(bool is_utc) {
  const int64_t now = WallNanos();
  const time_t seconds = now / 1000000000;
  tm parts;
  is_utc ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts);
  char date[32];
  strftime(date, sizeof(date), is_utc ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &parts);
  char text[48];
  snprintf(text, sizeof(text), "%s.%03d%s", date, static_cast<int>(now / 1000000 % 1000),
           is_utc ? "Z" : "");
  return text;
}

// ', "rank": 3, "host": "h"'.
std::string MembersOf(const LogFields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    text += ", " + JsonString(name) + ": ";
    const auto* number = std::get_if<int64_t>(&value);
    text += number != nullptr ? std::to_string(*number) : JsonString(std::get<std::string>(value));
  }
  return text;
}

// What every line of JSON has; null: lines are text. Read and written as a whole.
std::shared_ptr<const std::string> g_members_of_process;

std::string LineOf(LogLevel level, const std::string& message, const LogEvent& event) {
  const auto process = std::atomic_load(&g_members_of_process);
  if (process == nullptr)
    return TimeNow(/*is_utc=*/false) + " " + LevelName(level) + " tf_byteps: " + message + "\n";
  return "{\"time\": \"" + TimeNow(/*is_utc=*/true) + "\", \"level\": \"" + LevelName(level) +
         "\"" + *process + ", \"event\": " + JsonString(event.name) +
         ", \"message\": " + JsonString(message) + MembersOf(event.fields) + "}\n";
}

void WriteWaiting(WaitingLines* waiting) BYTEPS_REQUIRES(waiting->mutex) {
  while (!waiting->text.empty()) {
    const size_t written = WriteSome(waiting->text.data(), waiting->text.size());
    if (written == 0) break;
    waiting->text.erase(0, written);
  }
  if (waiting->text.empty() && waiting->left_out > 0) {
    const std::string number = std::to_string(waiting->left_out);
    waiting->text =
        LineOf(LogLevel::kWarning, number + " lines are left out here: nobody read the log",
               {"lines_left_out", {{"lines", static_cast<int64_t>(waiting->left_out)}}});
    waiting->left_out = 0;
  }
  waiting->is_empty = waiting->text.empty();
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

bool LogEnabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void LogAsJson(const LogFields& process) {
  std::atomic_store(&g_members_of_process, std::make_shared<const std::string>(MembersOf(process)));
}

void LogAsText() { std::atomic_store(&g_members_of_process, {}); }

void Log(LogLevel level, const std::string& message, const LogEvent& event) {
  ProcessEvents().Add(message, event);
  if (!LogEnabled(level)) return;
  const std::string line = LineOf(level, message, event);
  // The lock may have been held by a thread that a forked child does not have.
  if (!CheckNotForked().ok()) {
    WriteSome(line.data(), line.size());
    return;
  }
  WaitingLines& waiting = Waiting();
  MutexLock lock(waiting.mutex);
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
  MutexLock lock(waiting.mutex);
  WriteWaiting(&waiting);
}

}  // namespace byteps
