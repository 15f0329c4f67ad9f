#include "cc/staging/staged_part.h"

#include "cc/staging/device_forms.h"

namespace byteps {
namespace {

// Where the device has the codecs, only what travels is copied. A codec with error feedback needs
// what is in the worker's memory.
void ChooseForms(int32_t rank, RankDevice* device, StagedPart* part) {
  const Exchange& exchange = *part->tensor->exchange;
  part->encoded.values = part->reduced;
  part->encoded.elements = part->span.count;
  part->encoded.bytes = part->span.bytes();
  const PartSeed seed = exchange.PushSeed(part->number, rank);
  const BlockCodec* const push = exchange.forms->push(part->span.count);
  const DeviceForm form = DeviceFormOf(push, seed);
  if (!exchange.forms->wants_feedback() && device->Supports(form)) {
    part->encoded.form = form;
    part->encoded.bytes = push->EncodedBytes(part->span.count);
  }
  part->sum_form = SumFormOf(exchange, part->number, rank, device);
}

}  // namespace

DeviceSpan SpanOf(const StagedTensor& tensor, uint32_t part) {
  const uint64_t offset = tensor.exchange->PartOffset(part);
  DeviceSpan span;
  span.from = static_cast<const char*>(tensor.gpu.input) + offset;
  span.to = static_cast<char*>(tensor.gpu.output) + offset;
  span.count = tensor.exchange->entry->parts[part].element_count;
  span.dtype = tensor.gpu.tensor.dtype;
  return span;
}

NcclOperation OperationOf(const TensorDescription& tensor) {
  switch (tensor.kind) {
    case ExchangeKind::kMin: return NcclOperation::kMin;
    case ExchangeKind::kMax: return NcclOperation::kMax;
    case ExchangeKind::kProduct: return NcclOperation::kProduct;
    default: return NcclOperation::kSum;
  }
}

DeviceForm SumFormOf(const Exchange& exchange, uint32_t part, int32_t rank, RankDevice* device) {
  const PartSeed seed = exchange.PushSeed(part, rank);
  const DeviceForm form = DeviceFormOf(exchange.SumCodec(part), seed);
  return device->Supports(form) ? form : DeviceForm();
}

PartPointer NewPart(const TensorPointer& tensor, uint32_t number, const HostPlace& place,
                    RankDevice* device) {
  const auto part = std::make_shared<StagedPart>();
  part->tensor = tensor;
  part->number = number;
  part->span = SpanOf(*tensor, number);
  // The result's memory holds the host's sum meanwhile.
  part->reduced = place.alone() ? part->span.from : part->span.to;
  if (tensor->gpu.tensor.kind == ExchangeKind::kBroadcast) {
    part->sends = place.RootIsHere(tensor->gpu.tensor);
    part->receives = !part->sends;
  }
  ChooseForms(place.rank, device, part.get());
  return part;
}

}  // namespace byteps
