#include "cc/wire/handshake.h"

#include <gtest/gtest.h>

#include <array>

namespace byteps {
namespace {

std::array<uint8_t, kHelloBytes> Encode(const Hello& hello) {
  std::array<uint8_t, kHelloBytes> bytes;
  EncodeHello(hello, bytes.data());
  return bytes;
}

Hello SomeHello() {
  Hello hello;
  hello.job_id = "job-17";
  hello.epoch = 3;
  hello.role = Role::kServer;
  hello.rank = 5;
  hello.path = 3;
  hello.again = true;
  hello.nonce = RandomNonce();
  return hello;
}

TEST(HandshakeTest, HelloSurvivesARoundTrip) {
  const Hello sent = SomeHello();
  Hello received;
  ASSERT_TRUE(DecodeHello(Encode(sent).data(), &received).ok());
  EXPECT_EQ(received.job_id, "job-17");
  EXPECT_EQ(received.epoch, 3u);
  EXPECT_EQ(received.role, Role::kServer);
  EXPECT_EQ(received.rank, 5);
  EXPECT_EQ(received.path, 3u);
  EXPECT_TRUE(received.again);
  EXPECT_EQ(received.nonce, sent.nonce);
  EXPECT_EQ(received.PeerName(), "server 5");
}

// Whoever cannot be understood is told so before anything else is read (protocol rule 1).
TEST(HandshakeTest, RefusesForeignersOtherVersionsAndUnknownDemands) {
  Hello received;
  std::array<uint8_t, kHelloBytes> foreign{};
  EXPECT_EQ(DecodeHello(foreign.data(), &received).code(), StatusCode::kInvalidArgument);

  Hello newer = SomeHello();
  newer.protocol_version = kProtocolVersion + 1;
  const Status version = DecodeHello(Encode(newer).data(), &received);
  EXPECT_EQ(version.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(version.message().find("protocol version"), std::string::npos);

  Hello demanding = SomeHello();
  demanding.required_features = uint64_t{1} << 40;
  EXPECT_EQ(DecodeHello(Encode(demanding).data(), &received).code(),
            StatusCode::kFailedPrecondition);

  Hello offering = SomeHello();
  offering.features = uint64_t{1} << 40;  // an unknown offer is not a demand
  EXPECT_TRUE(DecodeHello(Encode(offering).data(), &received).ok());
}

TEST(HandshakeTest, JobIdIsBounded) {
  Hello hello = SomeHello();
  hello.job_id = std::string(kMaxJobIdBytes, 'j');
  Hello received;
  ASSERT_TRUE(DecodeHello(Encode(hello).data(), &received).ok());
  EXPECT_EQ(received.job_id, hello.job_id);

  auto bytes = Encode(hello);
  const size_t length_at = 4 + 2 + 8 + 8 + 4 + 1 + 4 + 16;
  bytes[length_at] = 255;
  EXPECT_FALSE(DecodeHello(bytes.data(), &received).ok());
}

TEST(HandshakeTest, NobodyWritesLinesIntoOurLogs) {
  Hello hello = SomeHello();
  hello.job_id = "job\nERROR all is lost";
  Hello received;
  EXPECT_FALSE(DecodeHello(Encode(hello).data(), &received).ok());

  Welcome sent;
  sent.status = FailedPrecondition("no\nyes");
  std::array<uint8_t, kWelcomeBytes> bytes;
  EncodeWelcome(sent, bytes.data());
  Welcome welcome;
  ASSERT_TRUE(DecodeWelcome(bytes.data(), &welcome).ok());
  EXPECT_EQ(welcome.status.message(), "no?yes");
}

TEST(HandshakeTest, RefusesUnknownRolesAndStatusCodes) {
  auto hello = Encode(SomeHello());
  hello[4 + 2 + 8 + 8 + 4] = 3;
  Hello received;
  EXPECT_FALSE(DecodeHello(hello.data(), &received).ok());

  std::array<uint8_t, kChallengeBytes> bytes;
  EncodeChallenge(Challenge(), bytes.data());
  Challenge challenge;
  ASSERT_TRUE(DecodeChallenge(bytes.data(), &challenge).ok());
  bytes[4 + 2] = 200;
  EXPECT_FALSE(DecodeChallenge(bytes.data(), &challenge).ok());
}

TEST(HandshakeTest, RefusalCarriesItsReason) {
  Welcome sent;
  sent.status = FailedPrecondition("this is job \"b\"");
  std::array<uint8_t, kWelcomeBytes> bytes;
  EncodeWelcome(sent, bytes.data());
  Welcome received;
  ASSERT_TRUE(DecodeWelcome(bytes.data(), &received).ok());
  EXPECT_EQ(received.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(received.status.message(), "this is job \"b\"");

  sent.status = Internal(std::string(10000, 'x'));  // cut, not refused
  EncodeWelcome(sent, bytes.data());
  ASSERT_TRUE(DecodeWelcome(bytes.data(), &received).ok());
  EXPECT_EQ(received.status.code(), StatusCode::kInternal);
}

// Connections of another epoch are refused (protocol rule 16).
TEST(HandshakeTest, ChecksJobAndEpochAndWhoIsMeant) {
  Hello hello = SomeHello();
  hello.to_role = Role::kServer;
  hello.to_rank = 2;
  EXPECT_TRUE(CheckHello(hello, "job-17", 3, Role::kServer, 2).ok());
  const Status job = CheckHello(hello, "job-18", 3, Role::kServer, 2);
  EXPECT_EQ(job.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(job.message().find("job-17"), std::string::npos);
  EXPECT_NE(job.message().find("job-18"), std::string::npos);
  EXPECT_EQ(CheckHello(hello, "job-17", 4, Role::kServer, 2).code(),
            StatusCode::kFailedPrecondition);
  for (const auto& [role, rank] : {std::pair{Role::kServer, 1}, std::pair{Role::kWorker, 2}}) {
    const Status other = CheckHello(hello, "job-17", 3, role, rank);
    EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(other.message().find("asked for server 2"), std::string::npos) << other.message();
  }
}

TEST(HandshakeTest, NoncesDiffer) { EXPECT_NE(RandomNonce(), RandomNonce()); }

}  // namespace
}  // namespace byteps
