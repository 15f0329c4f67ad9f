// What a child of fork() must not inherit (protocol rule 22).
//
// A forked child (tf.data service, a DataLoader, subprocess without exec) would keep the engine's
// sockets open: its parent's death would go unnoticed. Every descriptor of the engine is
// close-on-exec and registered here; in the child they are closed and the engine refuses all calls,
// because its threads exist in the parent only.
#pragma once

#include "cc/base/status.h"

namespace byteps {

// Registers an open descriptor. Thread-safe. Forget it before closing it.
void CloseInForkedChild(int descriptor);
void ForgetDescriptor(int descriptor);

// FAILED_PRECONDITION in a process that was forked off one with a running engine.
Status CheckNotForked();

}  // namespace byteps
