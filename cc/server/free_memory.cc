#include "cc/server/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace byteps {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// A file's first number; kNoLimit if there is none.
uint64_t FirstNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = kNoLimit;
  return file >> number ? number : kNoLimit;
}

// Of /proc/meminfo.
uint64_t Available(const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    uint64_t kilobytes = 0;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return kNoLimit;
}

// Of a control group: pages of files are given back when they are needed.
uint64_t LeftInGroup(const std::string& folder) {
  const uint64_t limit = FirstNumber(folder + "/memory.max");
  const uint64_t used = FirstNumber(folder + "/memory.current");
  if (limit == kNoLimit || used == kNoLimit) return kNoLimit;
  uint64_t of_files = 0;
  std::ifstream file(folder + "/memory.stat");
  for (std::string word; file >> word;) {
    if (word == "inactive_file") file >> of_files;
  }
  const uint64_t needed = used - std::min(used, of_files);
  return limit - std::min(limit, needed);
}

}  // namespace

uint64_t FreeMemoryUnder(const std::string& root) {
  uint64_t least = Available(root + "/proc/meminfo");
  const std::string groups = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    std::string path = line.substr(3);
    for (;;) {
      std::string folder = groups;
      least = std::min(least, LeftInGroup(folder.append(path)));
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/'));
    }
  }
  return least;
}

uint64_t FreeMemory() { return FreeMemoryUnder(""); }

}  // namespace byteps
