// Codecs by name.
#include <charconv>
#include <map>

#include "cc/codec/cast_codec.h"
#include "cc/codec/dithering_codec.h"
#include "cc/codec/fp8_codec.h"
#include "cc/codec/int4_codec.h"
#include "cc/codec/int8_codec.h"
#include "cc/codec/onebit_codec.h"
#include "cc/codec/randomk_codec.h"
#include "cc/codec/ratio.h"
#include "cc/codec/thc_codec.h"
#include "cc/codec/topk_codec.h"

namespace byteps {
namespace {

using Options = std::map<std::string, double>;
using MadeCodec = std::unique_ptr<Codec>;

struct Entry {
  const char* name;
  Options defaults;  // all options that it has
  MadeCodec (*make)(const Options&);
};

uint64_t BlockOf(const Options& options) { return static_cast<uint64_t>(options.at("block")); }

ThcJob JobOf(const Options& options) {
  return {static_cast<uint64_t>(options.at("workers")), options.at("average") == 1};
}

template <CodecId id>
MadeCodec MakeCast(const Options&) {
  return std::make_unique<CastCodec>(id);
}

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = {
      {"raw", {}, MakeCast<CodecId::kRaw>},
      {"fp16", {}, MakeCast<CodecId::kFloat16>},
      {"bf16", {}, MakeCast<CodecId::kBFloat16>},
      {"int8",
       {{"block", 32}, {"stochastic", 0}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<Int8Codec>(BlockOf(options), options.at("stochastic") == 1);
       }},
      {"fp8",
       {{"block", 128}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<Fp8Codec>(BlockOf(options));
       }},
      {"int4",
       {{"block", 32}, {"feedback", 0}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<Int4Codec>(BlockOf(options), options.at("feedback") == 1);
       }},
      {"onebit",
       {{"feedback", 1}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<OneBitCodec>(options.at("feedback") == 1);
       }},
      {"topk",
       {{"feedback", 1}, {"ratio", 0.01}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<TopKCodec>(options.at("ratio"), options.at("feedback") == 1);
       }},
      {"randomk",
       {{"feedback", 1}, {"ratio", 0.25}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<RandomKCodec>(options.at("ratio"), options.at("feedback") == 1);
       }},
      {"dithering",
       {{"bits", 4}, {"block", 256}, {"l2", 0}, {"natural", 0}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<DitheringCodec>(
             DitheringOptions{static_cast<uint32_t>(options.at("bits")), BlockOf(options),
                              options.at("l2") == 1, options.at("natural") == 1});
       }},
      {"thc",
       {{"average", 0}, {"workers", 1}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<ThcCodec>(JobOf(options));
       }},
      {"thc_sum",
       {{"average", 0}, {"workers", 1}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<ThcSumCodec>(JobOf(options));
       }},
  };
  return entries;
}

// Servers add in pieces of 4096 elements and multiples of it: blocks must not straddle them.
bool IsBlock(uint64_t value) { return value >= 32 && value <= 4096 && (value & (value - 1)) == 0; }

bool ParseWhole(const std::string& text, uint64_t* number) {
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, *number);
  return error == std::errc() && end == last;
}

// Null if `value` can stand for the option; else what can.
const char* ParseValue(const std::string& option, const std::string& value, double* number) {
  if (option == "ratio") {
    const bool is_ratio = codec_internal::ParseRatio(value, number) && *number > 0 && *number <= 1;
    return is_ratio ? nullptr : "greater than 0 and at most 1";
  }
  uint64_t whole = 0;
  const bool is_whole = ParseWhole(value, &whole);
  *number = static_cast<double>(whole);
  if (option == "block")
    return is_whole && IsBlock(whole) ? nullptr : "a power of two from 32 to 4096";
  if (option == "bits")
    return is_whole && whole >= 2 && whole <= 8 ? nullptr : "a whole number from 2 to 8";
  if (option == "workers")
    return is_whole && whole >= 1 && whole <= 256 ? nullptr : "a whole number from 1 to 256";
  return is_whole && whole <= 1 ? nullptr : "0 or 1";
}

Status ParseOption(const std::string& text, const std::string& option, Options* options) {
  const size_t equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const auto found = options->find(name);
  if (found == options->end()) {
    std::string known;
    for (const auto& [other, value] : *options) known += (known.empty() ? "" : ", ") + other;
    return InvalidArgument("codec \"" + text + "\": unknown option \"" + name +
                           "\"; known: " + (known.empty() ? "none" : known));
  }
  const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  const char* const expected = ParseValue(name, value, &found->second);
  if (expected == nullptr) return OkStatus();
  return InvalidArgument("codec \"" + text + "\": " + name + " is \"" + value + "\", must be " +
                         expected);
}

}  // namespace

std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  for (const Entry& entry : Entries()) names.emplace_back(entry.name);
  return names;
}

Status ParseCodec(const std::string& text, std::unique_ptr<Codec>* codec) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  for (const Entry& entry : Entries()) {
    if (name != entry.name) continue;
    Options options = entry.defaults;
    for (size_t begin = colon; begin != std::string::npos;) {
      const size_t end = text.find(',', begin + 1);
      const size_t length = end == std::string::npos ? end : end - begin - 1;
      BYTEPS_RETURN_IF_ERROR(ParseOption(text, text.substr(begin + 1, length), &options));
      begin = end;
    }
    *codec = entry.make(options);
    return OkStatus();
  }
  std::string known;
  for (const std::string& one : CodecNames()) known += (known.empty() ? "" : ", ") + one;
  return InvalidArgument("unknown codec \"" + name + "\"; known: " + known);
}

}  // namespace byteps
