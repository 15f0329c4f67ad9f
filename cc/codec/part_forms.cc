#include "cc/codec/part_forms.h"

#include <map>
#include <utility>

#include "cc/base/mutex.h"
#include "cc/codec/narrow.h"

namespace byteps {
namespace {

// Null if the text is not a full name of a codec whose parts have a length that follows from their
// elements.
std::unique_ptr<BlockCodec> ParseFullName(const std::string& text) {
  std::unique_ptr<Codec> codec;
  if (!ParseCodec(text, &codec).ok() || codec->name() != text) return nullptr;
  if (dynamic_cast<BlockCodec*>(codec.get()) == nullptr) return nullptr;
  return std::unique_ptr<BlockCodec>(static_cast<BlockCodec*>(codec.release()));
}

std::string Int8Name() {
  std::unique_ptr<Codec> codec;
  (void)ParseCodec("int8", &codec);  // it is known
  return codec->name();
}

// The codec of a table's entry: see kAutoCodec.
std::string CodecInUse(const std::string& codec) {
  if (codec == kAutoCodec) return "";
  return codec == kAutoInt8Codec ? Int8Name() : codec;
}

}  // namespace

// As many as programs name: few.
const PartForms& FormsOf(const TensorDescription& tensor) {
  static const PartForms& raw = *new PartForms(nullptr, nullptr);
  static Mutex& mutex = *new Mutex;
  static auto& known = *new std::map<std::string, PartForms>;
  if (tensor.codec.empty() || tensor.codec == kAutoCodec || tensor.HasOwnRows()) return raw;
  MutexLock lock(mutex);
  const auto found = known.find(tensor.codec);
  if (found != known.end()) return found->second;
  std::unique_ptr<BlockCodec> push = ParseFullName(CodecInUse(tensor.codec));
  if (push == nullptr) return raw;
  std::unique_ptr<BlockCodec> sum = ParseFullName(push->SumCodec());
  return known.try_emplace(tensor.codec, std::move(push), std::move(sum)).first->second;
}

bool FindPushForm(const TensorDescription& tensor, uint64_t elements, CodecId id,
                  const BlockCodec** form) {
  *form = MayBeNarrow(tensor) ? NarrowForm(id) : FormsOf(tensor).push(elements);
  return id == (*form == nullptr ? CodecId::kRaw : (*form)->id());
}

Status NameCodecInJob(const TensorDescription& tensor, int32_t num_workers, std::string* name) {
  std::unique_ptr<Codec> codec;
  BYTEPS_RETURN_IF_ERROR(ParseCodec(tensor.codec, &codec));
  const auto workers = static_cast<uint64_t>(num_workers);
  BYTEPS_RETURN_IF_ERROR(ParseCodec(codec->NameInJob(workers, tensor.average), &codec));
  *name = codec->name();
  return OkStatus();
}

Status CheckCodec(const TensorDescription& tensor) {
  const std::string codec = CodecInUse(tensor.codec);
  if (codec.empty() || ParseFullName(codec) != nullptr) return OkStatus();
  return InvalidArgument("tensor \"" + tensor.name + "\": \"" + tensor.codec +
                         "\" is not the full name of a codec");
}

}  // namespace byteps
