// A worker against a server that breaks the protocol: each field of a reply with a wrong value. The
// exchange ends with an error that names the server, and nothing is written where it does not
// belong.
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cc/engine/testing/scripted_server.h"
#include "cc/worker/worker.h"

namespace byteps {
namespace {

constexpr size_t kElements = 100;

using Corrupt = std::function<void(FrameHeader*, std::string* payload)>;

// Answers each push with its own payload, after `corrupt` has changed the reply.
ScriptedServer::OnPush Echo(Corrupt corrupt) {
  return [corrupt](Connection& connection, const FrameHeader& push,
                   std::shared_ptr<std::string> payload) {
    OutgoingFrame frame;
    frame.header = push;
    frame.header.type = FrameType::kReply;
    frame.header.place = PayloadLocation::kFollows;
    corrupt(&frame.header, payload.get());
    frame.header.payload_bytes = payload->size();
    frame.payload = payload->data();
    frame.keep_alive = payload;
    connection.Send(std::move(frame));
  };
}

// What one exchange with such a server comes to. `kind`: kSum or kGather.
Status Exchange(const Corrupt& corrupt, ExchangeKind kind = ExchangeKind::kSum,
                const std::string& codec = "") {
  EngineOptions options;
  options.compression.min_compress_bytes = 0;
  options.timeouts.operation_timeout = 10;
  ScriptedServer server(Echo(corrupt));
  const JobDescription job = server.StartJob(options);
  Worker worker(job, 0);
  const Status started = worker.Start();
  EXPECT_TRUE(started.ok()) << started.ToString();

  // A guard behind the output shows what is written beyond it.
  std::vector<float> input(kElements, 1), output(2 * kElements, -1);
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Status result;
  ExchangeRequest request;
  request.tensor.name = "t";
  request.tensor.kind = kind;
  request.tensor.codec = codec;
  request.tensor.shape = {static_cast<int64_t>(kElements)};
  request.input = input.data();
  request.output = output.data();
  if (kind == ExchangeKind::kGather) {
    request.tensor.shape = {-1};
    request.gather_rows = kElements;
    request.allocate_output = [&](const std::vector<int64_t>& rows) -> void* {
      EXPECT_LE(rows[0], static_cast<int64_t>(kElements));
      return output.data();
    };
  }
  request.done = [&](const Status& status) {
    std::lock_guard<std::mutex> lock(mutex);
    result = status;
    done = true;
    changed.notify_all();
  };
  worker.Enqueue(std::move(request));
  {
    std::unique_lock<std::mutex> lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return done; }));
  }
  worker.Stop();
  for (size_t i = kElements; i < output.size(); ++i) EXPECT_EQ(output[i], -1) << i;
  return result;
}

TEST(HostileServerTest, ARightReplyIsTaken) {
  const Status status = Exchange([](FrameHeader*, std::string*) {});
  EXPECT_TRUE(status.ok()) << status.ToString();
  const Status gathered = Exchange(
      [](FrameHeader*, std::string* payload) {
        const int64_t rows = kElements;
        payload->insert(0, reinterpret_cast<const char*>(&rows), sizeof(rows));
      },
      ExchangeKind::kGather);
  EXPECT_TRUE(gathered.ok()) << gathered.ToString();
}

// What no correct server sends (protocol rule 31).
TEST(HostileServerTest, EveryWrongFieldIsAnErrorThatNamesTheServer) {
  const std::vector<std::pair<const char*, Corrupt>> cases = {
      {"key", [](FrameHeader* header, std::string*) { header->key ^= 1; }},
      {"part", [](FrameHeader* header, std::string*) { header->part = 1; }},
      {"huge part", [](FrameHeader* header, std::string*) { header->part = UINT32_MAX; }},
      {"round", [](FrameHeader* header, std::string*) { header->round = 1; }},
      {"huge round", [](FrameHeader* header, std::string*) { header->round = UINT64_MAX; }},
      {"worker", [](FrameHeader* header, std::string*) { header->worker = 1; }},
      {"no worker", [](FrameHeader* header, std::string*) { header->worker = INT32_MIN; }},
      {"epoch", [](FrameHeader* header, std::string*) { header->epoch = 7; }},
      {"type", [](FrameHeader* header, std::string*) { header->type = FrameType::kPush; }},
      {"control", [](FrameHeader* header, std::string*) { header->type = FrameType::kControl; }},
      {"status", [](FrameHeader* h, std::string*) { h->status = static_cast<StatusCode>(99); }},
      {"codec", [](FrameHeader* h, std::string*) { h->codec = static_cast<CodecId>(9); }},
      {"codec of another tensor",
       [](FrameHeader* header, std::string*) { header->codec = CodecId::kInt8; }},
      {"place", [](FrameHeader* h, std::string*) { h->place = PayloadLocation::kSenderMemory; }},
      {"too short", [](FrameHeader*, std::string* payload) { payload->pop_back(); }},
      {"too long", [](FrameHeader*, std::string* payload) { payload->append(4, '\1'); }},
      {"much too long", [](FrameHeader*, std::string* payload) { payload->append(99999, '\1'); }},
      {"nothing", [](FrameHeader*, std::string* payload) { payload->clear(); }},
  };
  for (const auto& [what, corrupt] : cases) {
    const Status status = Exchange(corrupt);
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_NE(status.code(), StatusCode::kDeadlineExceeded) << what;
    // A reply without bytes is found at its end only, where the tensor is named.
    if (std::string(what) != "nothing") {
      EXPECT_NE(status.message().find("server 0"), std::string::npos)
          << what << ": " << status.message();
    }
  }
}

TEST(HostileServerTest, GatheredRowsMustFitTheReply) {
  for (const int64_t rows :
       {int64_t{0}, int64_t{-1}, int64_t{kElements + 1}, INT64_MAX, INT64_MIN}) {
    const Status status = Exchange(
        [rows](FrameHeader*, std::string* payload) {
          payload->insert(0, reinterpret_cast<const char*>(&rows), sizeof(rows));
        },
        ExchangeKind::kGather);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << rows << ": " << status.ToString();
  }
  const Status status = Exchange([](FrameHeader*, std::string* payload) { payload->resize(7); },
                                 ExchangeKind::kGather);
  EXPECT_FALSE(status.ok());
}

TEST(HostileServerTest, ACompressedReplyMustHaveTheFormOfItsSum) {
  const auto exchange = [](const Corrupt& corrupt) {
    return Exchange(corrupt, ExchangeKind::kSum, "int8");
  };
  const Status right = exchange([](FrameHeader*, std::string*) {});
  EXPECT_TRUE(right.ok()) << right.ToString();
  const std::vector<std::pair<const char*, Corrupt>> cases = {
      {"raw", [](FrameHeader* header, std::string*) { header->codec = CodecId::kRaw; }},
      {"codec", [](FrameHeader* header, std::string*) { header->codec = CodecId::kFloat8; }},
      {"unknown", [](FrameHeader* h, std::string*) { h->codec = static_cast<CodecId>(9); }},
      {"elements", [](FrameHeader* header, std::string*) { header->element_count = 99; }},
      {"more", [](FrameHeader* header, std::string*) { header->element_count = UINT64_MAX; }},
      {"too short", [](FrameHeader*, std::string* payload) { payload->pop_back(); }},
      {"too long", [](FrameHeader*, std::string* payload) { payload->append(1, '\1'); }},
      {"much too long", [](FrameHeader*, std::string* payload) { payload->append(99999, '\1'); }},
      {"an error", [](FrameHeader* h, std::string*) { h->status = StatusCode::kCancelled; }},
  };
  for (const auto& [what, corrupt] : cases) {
    const Status status = exchange(corrupt);
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_NE(status.code(), StatusCode::kDeadlineExceeded) << what;
    EXPECT_NE(status.message().find("server 0"), std::string::npos)
        << what << ": " << status.message();
  }
}

// More credit than was taken frees what is in flight, and no more.
TEST(HostileServerTest, TooMuchCreditDoesNoHarm) {
  const Status status =
      Exchange([](FrameHeader* header, std::string*) { header->credit_bytes = UINT64_MAX; });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

}  // namespace
}  // namespace byteps
