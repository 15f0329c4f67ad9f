#include "cc/codec/choice.h"

#include <gtest/gtest.h>

#include "cc/base/tensor_description.h"

namespace byteps {
namespace {

CodecChoice Parsed(const std::string& text) {
  CodecChoice choice;
  const Status status = ParseChoice(text, &choice);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return choice;
}

TEST(ChoiceTest, ACodecBeginsWhereItIsTold) {
  for (const char* const text : {"int8:start_step=70,block=64", "int8:block=64,start_step=70",
                                 "int8:start_step=70,block=64,stochastic=0"}) {
    EXPECT_EQ(Parsed(text).codec, "int8:block=64,stochastic=0") << text;
    EXPECT_EQ(Parsed(text).start_step, 70u) << text;
    EXPECT_EQ(Parsed(text).name(), "int8:block=64,stochastic=0,start_step=70") << text;
  }
  EXPECT_EQ(Parsed("fp16:start_step=1").name(), "fp16:start_step=1");
  EXPECT_EQ(Parsed(Parsed("fp16:start_step=1").name()).start_step, 1u);
  EXPECT_EQ(Parsed("fp16:start_step=0").name(), "fp16");
  EXPECT_EQ(Parsed("auto").name(), kAutoCodec);
}

TEST(ChoiceTest, WhatIsWrongIsNamed) {
  CodecChoice choice;
  for (const char* const value : {"", "-1", "1.5", "x"}) {
    const Status status = ParseChoice(std::string("int8:start_step=") + value, &choice);
    EXPECT_NE(status.message().find("start_step is \"" + std::string(value) + "\""),
              std::string::npos)
        << status.ToString();
  }
  EXPECT_FALSE(ParseChoice("int9:start_step=1", &choice).ok());
  EXPECT_FALSE(ParseChoice("int8:restart_step=1", &choice).ok());
}

}  // namespace
}  // namespace byteps
