// What a peer must prove before its memory is read (protocol rule 33). That it then is read:
// van/conformance_test.cc.
#include "cc/van/tcp/peer_memory.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cc/base/clock.h"
#include "cc/van/tcp/peer_process.h"

namespace byteps {
namespace {

struct Pair {
  Socket connecting, listening;
};

Pair Connected(const std::string& listens_at = "127.0.0.1", const std::string& at = "127.0.0.1") {
  Pair pair;
  Socket listener;
  Endpoint bound;
  EXPECT_TRUE(ListenOn(listens_at, 0, &listener, &bound).ok());
  const SocketWait wait{MonotonicNanos() + SecondsToNanos(10)};
  EXPECT_TRUE(ConnectTo({at, bound.port}, wait, &pair.connecting).ok());
  EXPECT_TRUE(WaitFor(listener, POLLIN, wait, "accept").ok());
  pair.listening = Socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return pair;
}

// A process that waits, forked from this one, so that what is where here is there, too.
class OtherProcess {
 public:
  OtherProcess() {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      // The descriptors are closed before fork returns here (base/fork.h).
      if (write(ready[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~OtherProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(PeerProcessTest, KnowsTheOtherEndOfEveryKindOfAddress) {
  for (const auto& [listens_at, at] : {std::pair{"127.0.0.1", "127.0.0.1"},
                                       std::pair{"::", "127.0.0.1"}, std::pair{"::1", "::1"}}) {
    const Pair pair = Connected(listens_at, at);
    for (const Socket* socket : {&pair.connecting, &pair.listening}) {
      EXPECT_TRUE(PeerIsOnThisHost(*socket)) << at;
      EXPECT_TRUE(HoldsOtherEnd(getpid(), *socket)) << at;
    }
  }
}

TEST(PeerProcessTest, OthersDoNotHoldIt) {
  const Pair pair = Connected();
  const OtherProcess other;
  for (const int64_t pid : {int64_t{0}, int64_t{-1}, int64_t{1}, int64_t{other.pid()}})
    EXPECT_FALSE(HoldsOtherEnd(pid, pair.listening)) << pid;
}

TEST(PeerMemoryTest, ReadsWhatShowsItsNumber) {
  const Pair pair = Connected();
  PeerMemory reader(true, false), owner(true, false);
  EXPECT_NE(reader.Offer(pair.listening, owner.nonce()).pid, 0);
  EXPECT_TRUE(reader.Probe(pair.listening, owner.Offer(pair.connecting, reader.nonce())));
  uint64_t value = 4711, read = 0;
  EXPECT_TRUE(reader.Read(reinterpret_cast<uint64_t>(&value), &read, sizeof(read)).ok());
  EXPECT_EQ(read, value);
  owner.Withdraw();
  EXPECT_EQ(reader.Read(reinterpret_cast<uint64_t>(&value), &read, sizeof(read)).code(),
            StatusCode::kUnavailable);
}

// As the 16 bytes with which a program begins, at a place that everybody knows.
TEST(PeerMemoryTest, ANumberOfThePeersChoiceProvesNothing) {
  const Pair pair = Connected();
  PeerMemory reader(true, false);
  const Nonce chosen = RandomNonce();
  reader.Offer(pair.listening, chosen);
  EXPECT_FALSE(reader.Probe(pair.listening, {getpid(), reinterpret_cast<uint64_t>(chosen.data())}));
}

TEST(PeerMemoryTest, AnotherProcessThatHoldsTheNumberIsNotThePeer) {
  const Pair pair = Connected();
  PeerMemory reader(true, false), owner(true, false);
  reader.Offer(pair.listening, owner.nonce());
  const MemoryOffer offer = owner.Offer(pair.connecting, reader.nonce());
  const OtherProcess other;
  Nonce there{};
  const iovec local{there.data(), there.size()};
  const iovec remote{reinterpret_cast<void*>(offer.address), there.size()};
  ASSERT_EQ(process_vm_readv(other.pid(), &local, 1, &remote, 1, 0), 16) << strerror(errno);
  ASSERT_EQ(there, reader.nonce());
  EXPECT_FALSE(reader.Probe(pair.listening, {other.pid(), offer.address}));
  EXPECT_TRUE(reader.Probe(pair.listening, offer));
}

TEST(PeerMemoryTest, NothingIsOfferedOrTakenWhereItIsNotAllowed) {
  const Pair pair = Connected();
  PeerMemory reader(false, true), owner(true, true);
  EXPECT_EQ(reader.Offer(pair.listening, owner.nonce()).pid, 0);
  EXPECT_FALSE(reader.Probe(pair.listening, owner.Offer(pair.connecting, reader.nonce())));
  EXPECT_FALSE(reader.readable());
}

}  // namespace
}  // namespace byteps
