// Which codecs a device can stand in for.
#ifndef TF_BYTEPS_CC_STAGING_DEVICE_FORMS_H_
#define TF_BYTEPS_CC_STAGING_DEVICE_FORMS_H_

#include "cc/codec/block_codec.h"
#include "cc/gpu/device_form.h"

namespace byteps {

// The form that gives the codec's own bytes of a part with this seed; raw if there is none, or no
// codec (null).
DeviceForm DeviceFormOf(const BlockCodec* codec, const PartSeed& seed);

}  // namespace byteps

#endif  // TF_BYTEPS_CC_STAGING_DEVICE_FORMS_H_
