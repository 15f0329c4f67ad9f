#include "cc/base/copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace byteps {
namespace {

TEST(CopyPastCacheTest, CopiesAllBytesAndNoOthers) {
  for (const size_t bytes : {0, 1, 63, 1000, 256 * 1024, 300 * 1024 + 77}) {
    for (const size_t offset : {0, 1, 60}) {
      std::vector<uint8_t> from(bytes);
      for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7 + (i >> 8));
      std::vector<uint8_t> to(offset + bytes + 1, 0xee);
      CopyPastCache(to.data() + offset, from.data(), bytes);
      std::vector<uint8_t> expected(offset, 0xee);
      expected.insert(expected.end(), from.begin(), from.end());
      expected.push_back(0xee);
      EXPECT_EQ(to, expected) << bytes << " bytes at " << offset;
    }
  }
}

}  // namespace
}  // namespace byteps
