#include "cc/base/members.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(MembersTest, AnOrdinaryNameIsOfAllWorkers) {
  for (const char* name : {"", "gradient", "worker{0}/x", "a/workers{0}/x"}) {
    const Members members = Members::Of(name);
    EXPECT_TRUE(members.are_all() && members.Contain(6)) << name;
    EXPECT_EQ(members.Count(7), 7);
    EXPECT_EQ(members.PlaceOf(6), 6u);
    EXPECT_TRUE(Members::Check(name, 1).ok());
  }
}

TEST(MembersTest, ANameSaysWhichWorkersItIsOf) {
  const Members members = Members::Of("workers{0,2-4,9}/gradient");
  EXPECT_EQ(members.Count(16), 5);
  const int32_t ranks[] = {0, 2, 3, 4, 9};
  for (size_t place = 0; place < 5; ++place) {
    EXPECT_TRUE(members.Contain(ranks[place]));
    EXPECT_EQ(members.PlaceOf(ranks[place]), place);
    EXPECT_EQ(members.RankAt(place), ranks[place]);
  }
  for (const int32_t other : {1, 5, 8, 10}) EXPECT_FALSE(members.Contain(other)) << other;
  EXPECT_TRUE(Members::Check("workers{0,2-4,9}/gradient", 10).ok());
  EXPECT_NE(Members::Check("workers{0,2-4,9}/x", 9).message().find("worker 9 of its process set"),
            std::string::npos);
}

TEST(MembersTest, WhatIsNoListOfAscendingRanksIsRefused) {
  for (const char* name :
       {"workers{", "workers{}/x", "workers{0}x", "workers{1,0}/x", "workers{1,1}/x",
        "workers{3-2}/x", "workers{0-2,2}/x", "workers{a}/x", "workers{-1}/x", "workers{1,}/x",
        "workers{ 1}/x", "workers{99999999999}/x", "workers{0-99999999}/x"}) {
    EXPECT_TRUE(Members::Of(name).are_all()) << name;
    EXPECT_FALSE(Members::Check(name, 1 << 30).ok()) << name;
  }
}

}  // namespace
}  // namespace byteps
