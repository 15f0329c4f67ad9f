// Which codecs a device can stand in for.
#pragma once

#include "cc/codec/block_codec.h"
#include "cc/gpu/device_form.h"

namespace byteps {

// The form that gives the codec's own bytes of a part with this seed; raw if there is none, or no
// codec (null).
DeviceForm DeviceFormOf(const BlockCodec* codec, const PartSeed& seed);

}  // namespace byteps
