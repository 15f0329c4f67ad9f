#include "cc/staging/local_messages.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

std::vector<LocalMessage> OneOfEach() {
  GroupInvitation invitation;
  for (size_t i = 0; i < invitation.id.bytes.size(); ++i)
    invitation.id.bytes[i] = static_cast<char>(i);
  invitation.results = {17, 18};
  LaunchReport report;
  report.kind = LaunchReport::Kind::kFailed;
  report.local_rank = 3;
  report.key = 1ull << 60;
  report.round = 5;
  report.part = 6;
  report.part_count = 7;
  report.agreement = 8;
  report.rows = 9;
  report.takes_shared = true;
  report.reason = Unavailable("a server is lost");
  LogSlice slice;
  slice.first = 9;
  slice.entries.resize(2);
  slice.entries[0].kind = LaunchEntry::Kind::kBroadcast;
  slice.entries[0].key = 10;
  slice.entries[0].round = 11;
  slice.entries[0].part = 12;
  slice.entries[0].rows = {3, 0};
  slice.entries[1].kind = LaunchEntry::Kind::kFail;
  slice.entries[1].reason = FailedPrecondition("they disagree");
  return {invitation, std::vector<LaunchReport>{report, LaunchReport()}, slice};
}

TEST(LocalMessages, EveryMessageSurvivesARoundTrip) {
  for (const LocalMessage& sent : OneOfEach()) {
    const std::string bytes = EncodeLocal(sent);
    LocalMessage received;
    ASSERT_TRUE(DecodeLocal(bytes, &received).ok()) << sent.index();
    EXPECT_EQ(received.index(), sent.index());
    EXPECT_EQ(EncodeLocal(received), bytes);
  }
}

TEST(LocalMessages, FieldsArriveWhereTheyBelong) {
  LocalMessage received;
  ASSERT_TRUE(DecodeLocal(EncodeLocal(OneOfEach()[0]), &received).ok());
  const auto& invitation = std::get<GroupInvitation>(received);
  EXPECT_EQ(invitation.id.bytes[5], 5);
  EXPECT_EQ(invitation.results.process, 17);
  EXPECT_EQ(invitation.results.descriptor, 18);
  ASSERT_TRUE(DecodeLocal(EncodeLocal(OneOfEach()[1]), &received).ok());
  const auto& reports = std::get<std::vector<LaunchReport>>(received);
  ASSERT_EQ(reports.size(), 2u);
  const LaunchReport& report = reports[0];
  EXPECT_EQ(report.part, 6u);
  EXPECT_EQ(report.part_count, 7u);
  EXPECT_EQ(report.rows, 9);
  EXPECT_TRUE(report.takes_shared);
  EXPECT_FALSE(reports[1].takes_shared);
  EXPECT_EQ(report.reason.message(), "a server is lost");
  ASSERT_TRUE(DecodeLocal(EncodeLocal(OneOfEach()[2]), &received).ok());
  const auto& slice = std::get<LogSlice>(received);
  EXPECT_EQ(slice.first, 9u);
  ASSERT_EQ(slice.entries.size(), 2u);
  EXPECT_EQ(slice.entries[0].part, 12u);
  EXPECT_EQ(slice.entries[0].rows, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(slice.entries[1].reason.code(), StatusCode::kFailedPrecondition);
}

TEST(LocalMessages, RefusesTruncationTrailingBytesAndUnknownTypes) {
  LocalMessage received;
  for (const LocalMessage& message : OneOfEach()) {
    const std::string bytes = EncodeLocal(message);
    for (size_t length = 0; length < bytes.size(); ++length)
      EXPECT_FALSE(DecodeLocal(bytes.substr(0, length), &received).ok()) << length;
    EXPECT_FALSE(DecodeLocal(bytes + "x", &received).ok());
  }
  EXPECT_FALSE(DecodeLocal("\3", &received).ok());
}

}  // namespace
}  // namespace byteps
