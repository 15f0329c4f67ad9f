// The engine's log: one line per message on standard error, "2026-01-31 12:00:00.123 WARNING
// tf_byteps: ...".
//
// Log never waits for who reads it, as it is called with locks held: a terminal that is paused, or
// a pipe that nobody reads, must not stop heartbeats. What finds no room is written with later
// lines, or by FlushLog, up to a limit; then lines are left out, and their number is told.
#ifndef TF_BYTEPS_CC_BASE_LOGGING_H_
#define TF_BYTEPS_CC_BASE_LOGGING_H_

#include <string>

namespace byteps {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Messages below `level` are dropped. The default is kWarning. Thread-safe, as is Log.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void Log(LogLevel level, const std::string& message);

// Writes what Log has found no room for, as far as there is some now. I/O threads call it about
// once a second.
void FlushLog();

inline void LogDebug(const std::string& message) { Log(LogLevel::kDebug, message); }
inline void LogInfo(const std::string& message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(const std::string& message) { Log(LogLevel::kWarning, message); }
inline void LogError(const std::string& message) { Log(LogLevel::kError, message); }

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_LOGGING_H_
