// ScatteredPayload: the payload of a frame whose bytes lie in several places. A socket takes them
// from there; what needs one place gets a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace byteps {

// Thread-safe once all has been added.
class ScatteredPayload {
 public:
  struct Piece {
    const uint8_t* data = nullptr;
    uint64_t bytes = 0;
  };

  // What comes next. `owner` keeps it where it is, for as long as this lives.
  void Add(const uint8_t* data, uint64_t bytes, std::shared_ptr<const void> owner) {
    if (bytes == 0) return;
    pieces_.push_back({data, bytes});
    owners_.push_back(std::move(owner));
    bytes_ += bytes;
  }

  const std::vector<Piece>& pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }

  // All of it in one place, which is made by the first call. Throws std::bad_alloc.
  const uint8_t* Whole() const {
    if (pieces_.size() == 1) return pieces_[0].data;
    std::call_once(is_whole_, [this] {
      whole_.reset(new uint8_t[bytes_]);
      uint8_t* next = whole_.get();
      for (const Piece& piece : pieces_) {
        std::memcpy(next, piece.data, piece.bytes);
        next += piece.bytes;
      }
    });
    return whole_.get();
  }

 private:
  std::vector<Piece> pieces_;  // none is empty
  std::vector<std::shared_ptr<const void>> owners_;
  uint64_t bytes_ = 0;
  mutable std::once_flag is_whole_;
  mutable std::unique_ptr<uint8_t[]> whole_;
};

// Where in one the next bytes are. It only goes on.
class ScatteredPlace {
 public:
  // What is there at `offset`, up to the end of its piece. `offset` lies in the payload, and not
  // before that of an earlier call.
  ScatteredPayload::Piece At(const ScatteredPayload& payload, uint64_t offset) {
    while (offset - begin_ >= payload.pieces()[piece_].bytes)
      begin_ += payload.pieces()[piece_++].bytes;
    const ScatteredPayload::Piece& piece = payload.pieces()[piece_];
    return {piece.data + (offset - begin_), piece.bytes - (offset - begin_)};
  }

 private:
  size_t piece_ = 0;
  uint64_t begin_ = 0;  // of that piece
};

}  // namespace byteps
