#include "cc/server/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace byteps {
namespace {

class Root {
 public:
  Root() : path(std::filesystem::path(::testing::TempDir()) / "free_memory_root") {
    std::filesystem::remove_all(path);
  }
  ~Root() { std::filesystem::remove_all(path); }

  void Put(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const std::filesystem::path path;
};

TEST(FreeMemoryTest, IsWhatTheSystemAndAllGroupsAllow) {
  const Root root;
  EXPECT_EQ(FreeMemoryUnder(root.path), std::numeric_limits<uint64_t>::max());
  root.Put("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   80 kB\n");
  EXPECT_EQ(FreeMemoryUnder(root.path), 80u * 1024);
  root.Put("proc/self/cgroup", "0::/outer/inner\n");
  root.Put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.Put("sys/fs/cgroup/outer/memory.max", "50000\n");
  root.Put("sys/fs/cgroup/outer/memory.current", "40000\n");
  EXPECT_EQ(FreeMemoryUnder(root.path), 10000u);
  root.Put("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 25000\n");
  EXPECT_EQ(FreeMemoryUnder(root.path), 35000u);
}

TEST(FreeMemoryTest, ThisProcessHasSome) { EXPECT_GT(FreeMemory(), 0u); }

}  // namespace
}  // namespace byteps
