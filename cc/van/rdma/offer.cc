#include "cc/van/rdma/offer.h"

#include "cc/wire/bytes.h"

namespace byteps {
namespace {

constexpr uint32_t kOfferMagic = 0x52535042;  // "BPSR"
constexpr uint16_t kOfferVersion = 3;
constexpr uint32_t kMostSlots = 1024;
constexpr uint32_t kMostSends = 1024;
constexpr uint32_t kMostSlotBytes = 64 << 20;
constexpr size_t kMaxReasonBytes = 1000;

}  // namespace

std::string EncodeRdmaOffer(const RdmaOffer& offer) {
  ByteWriter writer;
  writer.Put(kOfferMagic);
  writer.Put(kOfferVersion);
  writer.Put(offer.status.code());
  writer.PutString(offer.status.message().substr(0, kMaxReasonBytes));
  writer.Put(offer.window.slots);
  writer.Put(offer.window.slot_payload_bytes);
  writer.Put(offer.window.sends);
  writer.Put(offer.queue_pair);
  writer.Put(offer.packet_sequence);
  writer.Put(offer.mtu);
  writer.Put(offer.lid);
  writer.Put(static_cast<uint8_t>(offer.is_ethernet));
  for (const uint8_t byte : offer.gid.raw) writer.Put(byte);
  writer.Put(offer.slots_address);
  writer.Put(offer.slots_key);
  return writer.Take();
}

Status DecodeRdmaOffer(const std::string& bytes, RdmaOffer* offer) {
  ByteReader reader(bytes.data(), bytes.size());
  const bool is_offer =
      reader.Get<uint32_t>() == kOfferMagic && reader.Get<uint16_t>() == kOfferVersion;
  const StatusCode code = reader.Get<StatusCode>();
  std::string reason = reader.GetString(kMaxReasonBytes);
  offer->window.slots = reader.Get<uint32_t>();
  offer->window.slot_payload_bytes = reader.Get<uint32_t>();
  offer->window.sends = reader.Get<uint32_t>();
  offer->queue_pair = reader.Get<uint32_t>();
  offer->packet_sequence = reader.Get<uint32_t>();
  offer->mtu = reader.Get<int32_t>();
  offer->lid = reader.Get<uint16_t>();
  offer->is_ethernet = reader.Get<uint8_t>() != 0;
  for (uint8_t& byte : offer->gid.raw) byte = reader.Get<uint8_t>();
  offer->slots_address = reader.Get<uint64_t>();
  offer->slots_key = reader.Get<uint32_t>();
  if (!is_offer || !reader.ok() || reader.left() != 0 || code > StatusCode::kInternal)
    return InvalidArgument("malformed offer of an RDMA connection");
  offer->status = code == StatusCode::kOk ? OkStatus() : Status(code, std::move(reason));
  if (!offer->status.ok()) return OkStatus();
  const RdmaWindow& window = offer->window;
  if (window.slots < 1 || window.slots > kMostSlots || window.sends < 1 ||
      window.sends > kMostSends || window.slot_payload_bytes < 1 ||
      window.slot_payload_bytes > kMostSlotBytes || offer->mtu < verbs::IBV_MTU_256 ||
      offer->mtu > verbs::IBV_MTU_4096) {
    return InvalidArgument("an offer of an RDMA connection with impossible sizes");
  }
  return OkStatus();
}

}  // namespace byteps
