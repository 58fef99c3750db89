// Fatal errors that the card reports in BIF_DOORBELL_INT_CNTL. The driver clears the bits when it
// has seen them, so the register's latest value tells nothing.
#pragma once

#include <cstdint>
#include <string>

#include "decoder/model/access.h"

namespace tg::explain {

struct RasError {
  model::Stamp at;  // the first read that shows it; none: not seen
  bool athub = false;
  uint32_t value = 0;
  std::string name;  // of the register
};

class RasWatch : public model::Observer {
 public:
  void OnRegister(const model::RegisterAccess& access) override;
  void OnConnect(model::Stamp) override { error_ = {}; }

  // Of the newest connection.
  const RasError& error() const { return error_; }

 private:
  RasError error_;
};

}  // namespace tg::explain
