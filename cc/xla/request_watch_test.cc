#include "cc/xla/request_watch.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(RequestWatchTest, SeesEachRequestOnceItIsSet) {
  ExchangeRequest request;
  ShowToWatch(&request);  // nobody looks
  EXPECT_EQ(request.priority, ExchangeRequest().priority);
  SetRequestWatch([](ExchangeRequest* shown) { ++shown->priority; });
  ShowToWatch(&request);
  ShowToWatch(&request);
  EXPECT_EQ(request.priority, ExchangeRequest().priority + 2);
  SetRequestWatch(nullptr);
  ShowToWatch(&request);
  EXPECT_EQ(request.priority, ExchangeRequest().priority + 2);
}

}  // namespace
}  // namespace byteps
