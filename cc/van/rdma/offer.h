// RdmaOffer: what the two ends of a connection tell each other, over TCP and after the handshake,
// so that a pair of queue pairs can be connected.
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/van/rdma/verbs.h"

namespace byteps {

// How much may be in flight in one direction; the same for both directions of a connection.
struct RdmaWindow {
  uint32_t slots = 16;
  uint32_t slot_payload_bytes = 256 * 1024;  // of a slot, behind the room for a frame's header
  uint32_t sends = 32;                       // frames without payload, or with a control message
};

struct RdmaOffer {
  Status status;  // not OK: no RDMA on this connection; the message says why
  RdmaWindow window;
  uint32_t queue_pair = 0;
  uint32_t packet_sequence = 0;  // of the first packet that the sender of this will send
  int32_t mtu = 0;               // verbs::ibv_mtu
  uint16_t lid = 0;
  bool is_ethernet = false;
  verbs::ibv_gid gid{};
  // The slots that the receiver of this will write to.
  uint64_t slots_address = 0;
  uint32_t slots_key = 0;
};

std::string EncodeRdmaOffer(const RdmaOffer& offer);
// Refuses other forms, and windows that no Van offers.
Status DecodeRdmaOffer(const std::string& bytes, RdmaOffer* offer);

}  // namespace byteps
