// The place of this worker, for programs that ask for it when they run.
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/engine/engine.h"

namespace byteps {

// What a program may ask for, as a number.
inline int64_t PlaceIndex(const std::string& what) {
  static constexpr const char* kNames[] = {"rank", "size", "local_rank", "local_size"};
  int64_t index = 0;
  while (what != kNames[index]) ++index;
  return index;
}

// What it asks for, now: a program that was traced, compiled or saved in another job is right in
// this one (protocol rule 16).
inline Status ReadPlace(int64_t index, int32_t* number) {
  RankInfo place;
  BYTEPS_RETURN_IF_ERROR(CurrentRankInfo(&place));
  const int32_t numbers[] = {place.rank, place.size, place.local_rank, place.local_size};
  *number = numbers[index];
  return OkStatus();
}

}  // namespace byteps
