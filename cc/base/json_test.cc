#include "cc/base/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace byteps {
namespace {

TEST(JsonTest, TextIsQuoted) {
  EXPECT_EQ(JsonString(""), R"("")");
  EXPECT_EQ(JsonString("worker 1"), R"("worker 1")");
  EXPECT_EQ(JsonString("a \"b\" \\ c"), R"("a \"b\" \\ c")");
}

TEST(JsonTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(JsonString("one\ntwo\t\x01"), R"("one\u000atwo\u0009\u0001")");
  EXPECT_EQ(JsonString(std::string("\0", 1)), R"("\u0000")");
}

TEST(JsonTest, CharactersOfUtf8Stay) {
  for (const char* text : {"ü", "€", "𝄞", "\u07FF", "\uD7FF", "\uE000", "\U0010FFFF"})
    EXPECT_EQ(JsonString(text), "\"" + std::string(text) + "\"");
}

TEST(JsonTest, WhatIsNoUtf8IsReplaced) {
  EXPECT_EQ(JsonString("a\xFF z"), R"("a\ufffd z")");
  EXPECT_EQ(JsonString("\xC3"), R"("\ufffd")");                      // cut off
  EXPECT_EQ(JsonString("\xC0\xAF"), R"("\ufffd\ufffd")");            // "/" in two bytes
  EXPECT_EQ(JsonString("\xED\xA0\x80"), R"("\ufffd\ufffd\ufffd")");  // half of a pair
  EXPECT_EQ(JsonString("\xF4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
  EXPECT_EQ(JsonString("\xE2\x82\"\n"), R"("\ufffd\ufffd\"\u000a")");
}

TEST(JsonTest, ObjectsAreInObjects) {
  std::string text = ",";
  {
    JsonObject outer(&text);
    outer.Number("least", std::numeric_limits<int64_t>::min());
    {
      JsonObject inner = outer.Object("inner");
      inner.Null("nothing");
      inner.String("text", "\"");
    }
    outer.Object("empty");
    outer.Number("one", 1);
  }
  EXPECT_EQ(text, R"(,{"least":-9223372036854775808,"inner":{"nothing":null,"text":"\""},)"
                  R"("empty":{},"one":1})");
}

}  // namespace
}  // namespace byteps
