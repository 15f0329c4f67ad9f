#include "cc/tf/call_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace byteps {
namespace {

NamedExchange Exchange(const std::string& name, const std::string& codec = "",
                       int32_t priority = 0) {
  NamedExchange exchange;
  exchange.tensor.name = name;
  exchange.tensor.codec = codec;
  exchange.priority = priority;
  return exchange;
}

// The value of a text among the attributes.
std::string TextOf(const std::string& config, const std::string& key) {
  const size_t begin = config.find(key + " = \"") + key.size() + 4;
  return config.substr(begin, config.find('"', begin) - begin);
}

TEST(CallConfigTest, IsWhatXlaReads) {
  NamedExchange exchange = Exchange("jk", "", -7);
  exchange.tensor.kind = ExchangeKind::kBroadcast;
  exchange.tensor.average = true;
  exchange.tensor.root_rank = 3;
  exchange.tensor.backup_workers = 2;
  EXPECT_EQ(ToCallConfig({exchange}),
            "{names = \"6a6b\", codecs = \"\", priorities = \"-7\", kind = " +
                std::to_string(static_cast<int>(ExchangeKind::kBroadcast)) +
                " : i64, average = 1 : i64, root_rank = 3 : i64, backup_workers = 2 : i64}");
}

TEST(CallConfigTest, NamesMayHaveAnything) {
  const std::vector<std::string> names = {"plain", "a \"quoted\" one", "with.dots",
                                          std::string("\0\xff\n", 3), "größe"};
  std::vector<NamedExchange> exchanges;
  for (size_t i = 0; i < names.size(); ++i)
    exchanges.push_back(Exchange(names[i], i % 2 == 0 ? "" : "topk:ratio=0.1", i - 2));
  const std::string config = ToCallConfig(exchanges);
  const std::string digits = TextOf(config, "names"), codecs = TextOf(config, "codecs");
  const auto found = Split(digits), found_codecs = Split(codecs);
  ASSERT_EQ(found.size(), names.size());
  ASSERT_EQ(found_codecs.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(FromDigits(found[i]), names[i]);
    EXPECT_EQ(FromDigits(found_codecs[i]), exchanges[i].tensor.codec);
  }
  EXPECT_EQ(TextOf(config, "priorities"), "-2.-1.0.1.2");
}

}  // namespace
}  // namespace byteps
