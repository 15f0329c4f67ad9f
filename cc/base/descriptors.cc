#include "cc/base/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace byteps {
namespace {

constexpr rlim_t kUsuallyEnough = 65536;
// Threads, files of the program that are opened while the job runs.
constexpr uint64_t kSpare = 64;

rlimit Limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

void RaiseTo(rlim_t wanted) {
  rlimit limit = Limit();
  wanted = std::min(wanted, limit.rlim_max);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);  // who may not, is told by CheckDescriptors
}

uint64_t OpenDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  // To count them takes one.
  if (folder == nullptr && errno == EMFILE) return Limit().rlim_cur;
  uint64_t count = 0;
  while (folder != nullptr && readdir(folder.get()) != nullptr) ++count;
  return count > 3 ? count - 3 : 0;  // ".", "..", and the folder itself
}

}  // namespace

void RaiseDescriptorLimit() { RaiseTo(kUsuallyEnough); }

std::string DescriptorsInWords() {
  return std::to_string(OpenDescriptors()) + " of at most " + std::to_string(Limit().rlim_cur) +
         " descriptors are open here";
}

Status CheckDescriptors(uint64_t more) {
  const uint64_t needed = OpenDescriptors() + more + kSpare;
  RaiseTo(needed);
  if (Limit().rlim_cur >= needed) return OkStatus();
  return ResourceExhausted("this process needs " + std::to_string(more) +
                           " more descriptors for its connections, and " + DescriptorsInWords() +
                           "; raise the hard limit to " + std::to_string(needed) +
                           " or more (ulimit -Hn, LimitNOFILE= of systemd, nofile in "
                           "/etc/security/limits.conf)");
}

}  // namespace byteps
