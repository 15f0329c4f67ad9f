// Clocks and thread names.
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/seconds.h"  // for those who ask for the time

namespace byteps {

// Nanoseconds of a clock that never jumps; comparable within one host only.
int64_t MonotonicNanos();

// Returns after so long.
void SleepFor(int64_t nanoseconds);

// Nanoseconds since 1970; for timelines that are merged over hosts.
int64_t WallNanos();

// For tests: from now on this process's WallNanos() is so much ahead.
void ShiftWallClock(int64_t nanoseconds);

// Shown by top -H, gdb and perf; cut to 15 characters by the kernel.
void SetThreadName(const std::string& name);

}  // namespace byteps
