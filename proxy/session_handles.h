// Internal to the session: its handles on the loop, shared by session*.cc.
#pragma once

#include <uv.h>

#include "proxy/session.h"

namespace tg::proxy {

struct Session::Handles {
  uv_poll_t client, server;
  uv_timer_t tick, retry, hold;
  uv_idle_t idle;
  int client_mask = 0, server_mask = 0;
  bool ticking = false;
};

}  // namespace tg::proxy
