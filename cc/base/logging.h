// The engine's log: one line per message on standard error, "2026-01-31 12:00:00.123 WARNING
// tf_byteps: ...", or a JSON object for programs that read it (docs/logs.md).
//
// Log never waits for who reads it, as it is called with locks held: a terminal that is paused, or
// a pipe that nobody reads, must not stop heartbeats. What finds no room is written with later
// lines, or by FlushLog, up to a limit; then lines are left out, and their number is told.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace byteps {

using LogFields = std::vector<std::pair<std::string, std::variant<int64_t, std::string>>>;

// What a message tells of. Only lines of JSON show it. docs/logs.md lists all names and fields.
struct LogEvent {
  const char* name = "";
  LogFields fields;
};

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Messages below `level` are dropped. The default is kWarning. Thread-safe, as is Log.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void Log(LogLevel level, const std::string& message, const LogEvent& event = {});

// From now on lines are JSON objects, which all have these fields. Thread-safe.
void LogAsJson(const LogFields& process);
// From now on lines are text again. Thread-safe.
void LogAsText();

// Writes what Log has found no room for, as far as there is some now. I/O threads call it about
// once a second.
void FlushLog();

inline void LogDebug(const std::string& message, const LogEvent& event = {}) {
  Log(LogLevel::kDebug, message, event);
}
inline void LogInfo(const std::string& message, const LogEvent& event = {}) {
  Log(LogLevel::kInfo, message, event);
}
inline void LogWarning(const std::string& message, const LogEvent& event = {}) {
  Log(LogLevel::kWarning, message, event);
}
inline void LogError(const std::string& message, const LogEvent& event = {}) {
  Log(LogLevel::kError, message, event);
}

}  // namespace byteps
