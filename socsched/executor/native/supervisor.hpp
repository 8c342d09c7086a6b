// Words to systemd where it started this program (sd_notify(3)): a datagram to $NOTIFY_SOCKET.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace socsched {

// Tell it that the run has begun ("READY=1"), or still goes on ("WATCHDOG=1"); nothing happens without systemd.
inline void tell_supervisor(const char* words) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (!name || (name[0] != '/' && name[0] != '@') || std::strlen(name) >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, name);
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(name));
  if (name[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const int channel = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (channel < 0) return;
  sendto(channel, words, std::strlen(words), MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
  close(channel);
}

}  // namespace socsched
