// WaitingRoom: accepted connections that are listened to later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "cc/base/status.h"
#include "cc/van/tcp/event_loop.h"
#include "cc/van/tcp/socket.h"
#include "cc/van/tcp/unauthenticated.h"

namespace byteps {

// Those of hosts that have failed too often wait while handshakes have had their share of the
// processor, but for one in each turn of 10 ms, the oldest first. Who goes meanwhile is not
// listened to, so that those who only come and go hold nobody up. So many wait at most: a newer one
// takes the place of the oldest.
//
// `strangers` outlives it. All but the constructor and Open is called by the loop's thread.
class WaitingRoom : public Watcher {
 public:
  static constexpr size_t kMost = 256;

  // Called with a socket that is to be listened to.
  using Next = std::function<void(Socket)>;

  WaitingRoom(UnauthenticatedConnections* strangers, Next next)
      : strangers_(strangers), next_(std::move(next)) {}

  // Before it is added to a loop, under this descriptor.
  Status Open();
  int descriptor() const { return timer_.get(); }

  void Enter(Socket socket);

  // Closes the oldest half, for lack of descriptors.
  void MakeRoom();

  void OnEvents(uint32_t events) override;
  void OnStop() override;

 private:
  struct Waiting {
    Socket socket;
    std::string host;
  };

  void SetTimer(bool is_on);
  void DropThoseThatHaveGone();
  void Refuse(const Waiting& one, const std::string& why);

  UnauthenticatedConnections* const strangers_;
  const Next next_;
  Socket timer_;  // runs while somebody waits
  std::deque<Waiting> waiting_;
};

}  // namespace byteps
