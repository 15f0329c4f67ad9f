// RdmaDevice: one port of one opened device, and what it offers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/status.h"
#include "cc/van/rdma/verbs.h"

namespace byteps {

class RdmaDevice {
 public:
  ~RdmaDevice();
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  // UNAVAILABLE if the port is not up.
  static Status Open(const verbs::Verbs& verbs, verbs::ibv_device* device, uint8_t port,
                     const RdmaOptions& options, std::shared_ptr<RdmaDevice>* opened);

  // "mlx5_0 port 1".
  const std::string& name() const { return name_; }
  const verbs::Verbs& verbs() const { return verbs_; }
  verbs::ibv_context* context() const { return context_; }
  verbs::ibv_pd* protection_domain() const { return domain_; }
  const verbs::ibv_device_attr& limits() const { return limits_; }
  const verbs::ibv_port_attr& port() const { return port_; }
  uint8_t port_number() const { return port_number_; }
  // RoCE: addresses are GIDs, and the local identifier means nothing.
  bool is_ethernet() const { return port_.link_layer == verbs::IBV_LINK_LAYER_ETHERNET; }
  uint8_t gid_index() const { return gid_index_; }
  const verbs::ibv_gid& gid() const { return gid_; }
  // Whether one of the port's GIDs is this IPv4 or IPv6 address.
  bool HasAddress(const std::string& address) const;

 private:
  RdmaDevice(const verbs::Verbs& verbs, uint8_t port) : verbs_(verbs), port_number_(port) {}
  Status OpenContext(verbs::ibv_device* device);
  Status ChooseGid(const RdmaOptions& options);

  const verbs::Verbs& verbs_;
  const uint8_t port_number_;
  std::string name_;
  std::string sysfs_name_;
  verbs::ibv_context* context_ = nullptr;
  verbs::ibv_pd* domain_ = nullptr;
  verbs::ibv_device_attr limits_{};
  verbs::ibv_port_attr port_{};
  std::vector<verbs::ibv_gid> gids_;
  uint8_t gid_index_ = 0;
  verbs::ibv_gid gid_{};
};

// The ports that `options` name, or the one that fits. FAILED_PRECONDITION where there is no RDMA,
// UNAVAILABLE if no port is up; the message says what is missing.
Status OpenRdmaDevices(const verbs::Verbs& verbs, const RdmaOptions& options,
                       std::vector<std::shared_ptr<RdmaDevice>>* devices);

// Why memory could not be registered: the system call's error, and what to do where the limit of
// locked memory is the reason. `bytes` were asked for.
Status CannotRegister(uint64_t bytes, const std::string& device);

}  // namespace byteps
