#include "cc/van/rdma/device.h"

#include <arpa/inet.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "cc/base/fork.h"

namespace byteps {
namespace {

using verbs::ibv_device;
using verbs::ibv_gid;
using verbs::Verbs;

constexpr uint8_t kMostPorts = 2;  // where nobody has named one; adapters have one or two

// IPv4 addresses appear as ::ffff:a.b.c.d.
bool IsIpv4(const ibv_gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0;
}

bool ParseGid(const std::string& address, ibv_gid* gid) {
  if (inet_pton(AF_INET6, address.c_str(), gid->raw) == 1) return true;
  return inet_pton(AF_INET6, ("::ffff:" + address).c_str(), gid->raw) == 1;
}

bool SameGid(const ibv_gid& a, const ibv_gid& b) {
  return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0;
}

// What the kernel says of one entry of a RoCE port's table: "IB/RoCE v1" or "RoCE v2".
bool IsRoceV2(const std::string& device, uint8_t port, int index) {
  std::ifstream file("/sys/class/infiniband/" + device + "/ports/" + std::to_string(port) +
                     "/gid_attrs/types/" + std::to_string(index));
  std::string type;
  std::getline(file, type);
  return type == "RoCE v2";
}

std::string PortStateName(int state) {
  static const char* const kNames[] = {"unknown", "down",   "initializing",
                                       "armed",   "active", "active with deferred errors"};
  return state >= 0 && state <= 5 ? kNames[state] : "in state " + std::to_string(state);
}

// "mlx5_0:2" -> mlx5_0, 2; without a port: 1.
Status SplitPort(const std::string& entry, std::string* name, uint8_t* port) {
  const size_t colon = entry.find(':');
  *name = entry.substr(0, colon);
  *port = 1;
  if (colon == std::string::npos) return OkStatus();
  const char* const end = entry.data() + entry.size();
  const auto [stop, error] = std::from_chars(entry.data() + colon + 1, end, *port);
  if (error == std::errc() && stop == end && *port > 0) return OkStatus();
  return InvalidArgument("RDMA device \"" + entry +
                         "\": what follows the colon is not a port; the first port is 1");
}

std::vector<std::string> SplitList(const std::string& list) {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// The system's list of devices, freed at the end.
class DeviceList {
 public:
  explicit DeviceList(const Verbs& verbs) : verbs_(verbs) {
    int count = 0;
    errno = 0;
    list_ = verbs.ibv_get_device_list(&count);
    if (list_ == nullptr) error_ = ErrnoMessage("ibv_get_device_list");
    for (int i = 0; list_ != nullptr && i < count; ++i) {
      devices_.push_back(list_[i]);
      names_ += (i == 0 ? "" : ", ") + std::string(verbs.ibv_get_device_name(list_[i]));
    }
  }
  ~DeviceList() {
    if (list_ != nullptr) verbs_.ibv_free_device_list(list_);
  }

  Status Check() const {
    if (list_ == nullptr) {
      return FailedPrecondition("this system has no RDMA support (" + error_ +
                                "); python -m tf_byteps.rdma says what is missing");
    }
    if (devices_.empty()) {
      return FailedPrecondition(
          "this machine has no RDMA device; python -m tf_byteps.rdma says what is missing");
    }
    return OkStatus();
  }
  const std::vector<ibv_device*>& devices() const { return devices_; }
  const std::string& names() const { return names_; }
  ibv_device* Find(const std::string& name) const {
    for (ibv_device* const device : devices_)
      if (name == verbs_.ibv_get_device_name(device)) return device;
    return nullptr;
  }

 private:
  const Verbs& verbs_;
  ibv_device** list_ = nullptr;
  std::vector<ibv_device*> devices_;
  std::string names_;
  std::string error_;
};

}  // namespace

RdmaDevice::~RdmaDevice() {
  if (domain_ != nullptr) verbs_.ibv_dealloc_pd(domain_);
  if (context_ == nullptr) return;
  ForgetDescriptor(context_->cmd_fd);
  ForgetDescriptor(context_->async_fd);
  verbs_.ibv_close_device(context_);
}

Status RdmaDevice::Open(const Verbs& verbs, ibv_device* device, uint8_t port,
                        const RdmaOptions& options, std::shared_ptr<RdmaDevice>* opened) {
  std::shared_ptr<RdmaDevice> result(new RdmaDevice(verbs, port));
  BYTEPS_RETURN_IF_ERROR(result->OpenContext(device));
  BYTEPS_RETURN_IF_ERROR(result->ChooseGid(options));
  *opened = std::move(result);
  return OkStatus();
}

Status RdmaDevice::OpenContext(ibv_device* device) {
  sysfs_name_ = verbs_.ibv_get_device_name(device);
  name_ = sysfs_name_ + " port " + std::to_string(port_number_);
  context_ = verbs_.ibv_open_device(device);
  if (context_ == nullptr) return Unavailable(ErrnoMessage("open RDMA device " + sysfs_name_));
  // A child that kept them would keep the queue pairs of a killed parent alive.
  CloseInForkedChild(context_->cmd_fd);
  CloseInForkedChild(context_->async_fd);
  errno = verbs_.ibv_query_device(context_, &limits_);
  if (errno != 0) return Unavailable(ErrnoMessage("query RDMA device " + sysfs_name_));
  if (port_number_ < 1 || port_number_ > limits_.phys_port_cnt) {
    return FailedPrecondition("RDMA device " + sysfs_name_ + " has ports 1 to " +
                              std::to_string(limits_.phys_port_cnt) + ", not " +
                              std::to_string(port_number_));
  }
  errno = verbs_.ibv_query_port(context_, port_number_, &port_);
  if (errno != 0) return Unavailable(ErrnoMessage("query RDMA device " + name_));
  if (port_.state != verbs::IBV_PORT_ACTIVE) {
    return Unavailable("RDMA device " + name_ + " is " + PortStateName(port_.state) +
                       ", not active: check the cable, and ip link");
  }
  domain_ = verbs_.ibv_alloc_pd(context_);
  if (domain_ == nullptr) return ResourceExhausted(ErrnoMessage("ibv_alloc_pd on " + name_));
  for (int i = 0; i < port_.gid_tbl_len; ++i) {
    ibv_gid gid{};
    if (verbs_.ibv_query_gid(context_, port_number_, i, &gid) != 0) gid = {};
    gids_.push_back(gid);
  }
  return OkStatus();
}

Status RdmaDevice::ChooseGid(const RdmaOptions& options) {
  if (options.gid_index >= 0) {
    if (options.gid_index >= static_cast<int>(gids_.size())) {
      return FailedPrecondition("RDMA device " + name_ + " has " + std::to_string(gids_.size()) +
                                " GIDs; there is no index " + std::to_string(options.gid_index));
    }
    gid_index_ = static_cast<uint8_t>(options.gid_index);
  } else if (is_ethernet()) {
    ibv_gid wanted{};
    const bool has_wanted = ParseGid(options.address, &wanted);
    int best = -1;
    int best_score = 0;
    for (int i = 0; i < static_cast<int>(gids_.size()); ++i) {
      if (SameGid(gids_[i], ibv_gid{})) continue;
      const int score = 1 + (has_wanted && SameGid(gids_[i], wanted) ? 4 : 0) +
                        (IsIpv4(gids_[i]) ? 2 : 0) +
                        (IsRoceV2(sysfs_name_, port_number_, i) ? 1 : 0);
      if (score > best_score) {
        best = i;
        best_score = score;
      }
    }
    if (best < 0) {
      return Unavailable("RDMA device " + name_ +
                         " has no GID: its network interface has no address");
    }
    gid_index_ = static_cast<uint8_t>(best);
  }
  if (gid_index_ < gids_.size()) gid_ = gids_[gid_index_];
  return OkStatus();
}

bool RdmaDevice::HasAddress(const std::string& address) const {
  ibv_gid wanted{};
  if (!ParseGid(address, &wanted)) return false;
  return std::any_of(gids_.begin(), gids_.end(),
                     [&](const ibv_gid& gid) { return SameGid(gid, wanted); });
}

Status OpenRdmaDevices(const Verbs& verbs, const RdmaOptions& options,
                       std::vector<std::shared_ptr<RdmaDevice>>* devices) {
  const DeviceList list(verbs);
  BYTEPS_RETURN_IF_ERROR(list.Check());
  for (const std::string& entry : SplitList(options.devices)) {
    std::string name;
    uint8_t port = 0;
    BYTEPS_RETURN_IF_ERROR(SplitPort(entry, &name, &port));
    ibv_device* const device = list.Find(name);
    if (device == nullptr) {
      return FailedPrecondition("there is no RDMA device \"" + name + "\"; there are " +
                                list.names());
    }
    std::shared_ptr<RdmaDevice> opened;
    BYTEPS_RETURN_IF_ERROR(RdmaDevice::Open(verbs, device, port, options, &opened));
    devices->push_back(std::move(opened));
  }
  if (!devices->empty()) return OkStatus();
  // Nobody has named one.
  Status reason;
  std::shared_ptr<RdmaDevice> first;
  for (ibv_device* const device : list.devices()) {
    for (uint8_t port = 1; port <= kMostPorts; ++port) {
      std::shared_ptr<RdmaDevice> opened;
      const Status status = RdmaDevice::Open(verbs, device, port, options, &opened);
      if (!status.ok()) {
        if (reason.ok()) reason = status;
        continue;
      }
      if (!options.address.empty() && opened->HasAddress(options.address)) {
        devices->push_back(std::move(opened));
        return OkStatus();
      }
      if (first == nullptr) first = std::move(opened);
    }
  }
  if (first == nullptr) return reason;
  devices->push_back(std::move(first));
  return OkStatus();
}

Status CannotRegister(uint64_t bytes, const std::string& device) {
  const int error = errno;
  std::string message =
      ErrnoMessage("register " + std::to_string(bytes) + " bytes with RDMA device " + device);
  rlimit limit{};
  if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY) {
    message += ": the limit of locked memory (RLIMIT_MEMLOCK) is " +
               std::to_string(limit.rlim_cur) +
               " bytes for all of this process; raise it with `ulimit -l unlimited` before the "
               "program starts, with `* - memlock unlimited` in /etc/security/limits.conf, "
               "LimitMEMLOCK=infinity in a systemd unit, or docker run --ulimit memlock=-1";
  }
  return ResourceExhausted(message);
}

}  // namespace byteps
