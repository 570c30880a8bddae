// Threads of our own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace dicomm {

// Starts a thread that blocks all signals: they belong to the program's own threads, and a waiting caller
// must see them. name: at most 15 characters.
template <class Body>
std::thread start_thread(const char *name, Body &&body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace dicomm
