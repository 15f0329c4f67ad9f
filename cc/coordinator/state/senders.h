// Which messages the coordinator takes, and from whom: a table.
#pragma once

#include "cc/wire/control.h"
#include "cc/wire/handshake.h"

namespace byteps {

enum class Senders { kNobody, kWorkers, kServers, kBoth };

struct MessageRule {
  Senders senders;
  const char* what;  // others may not do
};

// Unless the table says otherwise, a message is one that the coordinator itself sends.
template <typename Message>
inline constexpr MessageRule kMessageRule = {Senders::kNobody,
                                             "send what only the coordinator sends"};

template <>
inline constexpr MessageRule kMessageRule<Heartbeat> = {Senders::kBoth, "be heard"};
template <>
inline constexpr MessageRule kMessageRule<Reachable> = {Senders::kBoth, "say where it listens"};
template <>
inline constexpr MessageRule kMessageRule<TableAck> = {Senders::kServers, "acknowledge a table"};
template <>
inline constexpr MessageRule kMessageRule<DeclareRequest> = {Senders::kWorkers, "declare tensors"};
template <>
inline constexpr MessageRule kMessageRule<Goodbye> = {Senders::kWorkers, "say goodbye"};
template <>
inline constexpr MessageRule kMessageRule<PeerLost> = {Senders::kWorkers, "report a lost process"};
template <>
inline constexpr MessageRule kMessageRule<LinkReport> = {Senders::kWorkers, "report a bandwidth"};
template <>
inline constexpr MessageRule kMessageRule<RoundProgress> = {Senders::kWorkers, "hold rounds"};
template <>
inline constexpr MessageRule kMessageRule<PartProgress> = {Senders::kWorkers, "report parts"};
template <>
inline constexpr MessageRule kMessageRule<ResultProgress> = {Senders::kWorkers, "report results"};
template <>
inline constexpr MessageRule kMessageRule<Joined> = {Senders::kWorkers, "join"};
template <>
inline constexpr MessageRule kMessageRule<Relay> = {Senders::kWorkers, "write to a worker"};
template <>
inline constexpr MessageRule kMessageRule<StallQuery> = {Senders::kWorkers, "ask about a stall"};
template <>
inline constexpr MessageRule kMessageRule<StallAnswer> = {Senders::kWorkers, "answer for a stall"};

constexpr bool MaySend(Role role, Senders senders) {
  return senders == Senders::kBoth || (senders == Senders::kWorkers && role == Role::kWorker) ||
         (senders == Senders::kServers && role == Role::kServer);
}

}  // namespace byteps
