// UnauthenticatedConnections: what those who have not shaken hands may cost a listener.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cc/base/status.h"

namespace byteps {

// A connection in its handshake.
class Stranger {
 public:
  virtual ~Stranger() = default;
  // Any thread. Nothing happens if it has shaken hands meanwhile.
  virtual void EndHandshake(const Status& reason) = 0;
};

// Thread-safe.
//
// Nobody is closed unheard for what others at the same address have done: processes of the job may
// run on that host, too. But the connections of hosts whose handshakes fail again and again have to
// wait while handshakes have taken more than their share of the processor. So many handshakes are
// open at most: a newer one ends the oldest of those that have not said a Hello, or else the
// oldest.
class UnauthenticatedConnections {
 public:
  static constexpr double kBurst = 20;          // failures of a host at once
  static constexpr double kPerSecond = 10;      // and lasting
  static constexpr double kBurstSeconds = 0.1;  // of the processor's time, for handshakes at once
  static constexpr double kShare = 0.05;        // and lasting
  static constexpr size_t kMostWaiting = 256;   // or twice as many as are expected
  static constexpr size_t kMostHosts = 1024;    // that are told apart
  static constexpr double kLogsPerSecond = 0.5;
  static constexpr double kLogBurst = 10;

  // Whether connections of `host`, a numeric address, have to wait while there is no time.
  bool HasFailedTooOften(const std::string& host, int64_t now_ns);
  // Whether there is; and a handshake has taken so much of it.
  bool HasTime(int64_t now_ns);
  void Spend(double processor_seconds, int64_t now_ns);

  // So many connections of the job may come at once.
  void Expect(size_t connections);

  // A handshake begins; it has got as far as a Hello; it is over, well or not.
  void Add(const std::shared_ptr<Stranger>& stranger);
  void HasSaidHello(Stranger* stranger);
  void Remove(Stranger* stranger);

  // Ends half of the handshakes that have not got as far as a Hello, for lack of descriptors.
  void MakeRoom();

  // One has failed. Returns what to log: "" if there has been too much of it.
  std::string Failed(const std::string& host, const std::string& what, int64_t now_ns);

 private:
  // Holds up to `most`, gains `per_second`.
  struct Bucket {
    double level = 0;
    int64_t filled_at_ns = 0;
  };
  static void Fill(Bucket* bucket, double most, double per_second, int64_t now_ns);
  Bucket& BucketOf(const std::string& host, int64_t now_ns);

  // With mutex_ held.
  std::shared_ptr<Stranger> TakeOldest(std::list<Stranger*>* of);

  // Of an open handshake.
  struct Place {
    std::weak_ptr<Stranger> stranger;
    std::list<Stranger*>* list;
    std::list<Stranger*>::iterator at;
  };

  std::mutex mutex_;  // guards all below
  std::unordered_map<std::string, Bucket> hosts_;
  Bucket all_others_{kBurst, 0};
  Bucket processor_{kBurstSeconds, 0};
  size_t most_waiting_ = kMostWaiting;
  std::list<Stranger*> silent_, greeted_;  // those before and after their Hello; the oldest first
  std::unordered_map<Stranger*, Place> places_;
  Bucket log_{kLogBurst, 0};
  uint64_t not_logged_ = 0;
};

}  // namespace byteps
