// LocalLink: connects the workers of a host with local rank 0, by sockets that stay within the
// host. Local rank 0 listens; the others learn where from a message through the coordinator.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/mutex.h"
#include "cc/staging/local_messages.h"
#include "cc/van/van.h"

namespace byteps {

// Thread-safe.
class LocalLink : private ConnectionHandler, private ConnectionAcceptor {
 public:
  struct Options {
    const JobDescription* job = nullptr;  // outlives this object
    std::vector<int32_t> workers;         // of this host, by local rank
    int32_t local_rank = 0;
    // On a thread of the link. An error closes the connection.
    std::function<Status(LocalMessage)> on_message;
    // A connection has ended that Stop has not closed.
    std::function<void(int32_t local_rank, const Status& reason)> on_lost;
  };

  // `van`: null for one by TCP.
  explicit LocalLink(Options options, std::unique_ptr<Van> van = nullptr);
  ~LocalLink() override;

  // Local rank 0: takes a port.
  Status Listen(Endpoint* endpoint);
  // The others: connects to local rank 0; blocks up to the connect timeout.
  Status Connect(const Endpoint& endpoint);

  // From or to local rank 0. What is sent before there is a connection waits for it.
  void Send(int32_t local_rank, const LocalMessage& message);

  // Ends all connections, without waiting, also from inside a callback; `on_lost` follows.
  void Close(const Status& reason);
  // Closes all connections; no callback comes after it. Idempotent.
  void Stop();

 private:
  struct Line {
    std::shared_ptr<Connection> connection;
    std::vector<OutgoingFrame> waiting;  // for the connection
  };

  int32_t LocalRankOf(const Hello& hello) const;
  Status OnHello(const Hello& hello, const std::string& peer_address,
                 ConnectionHandler** handler) override;
  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  Status OnHeader(Connection& connection, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) override;
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override;
  void OnClosed(Connection& connection, const Status& reason) override;

  const Options options_;
  const std::unique_ptr<Van> van_;
  Mutex mutex_;
  std::vector<Line> lines_ BYTEPS_GUARDED_BY(mutex_);  // by local rank
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps
