// Messages in the order of their sends, linked through Outgoing::next.
#pragma once

#include "transport/transport.h"

namespace dicomm {

class MessageQueue {
 public:
  MessageQueue() = default;
  MessageQueue(const MessageQueue &) = delete;

  bool empty() const { return first_ == nullptr; }
  Outgoing *front() const { return first_; }
  void push(Outgoing &message) {
    message.next = nullptr;
    *end_ = &message;
    end_ = &message.next;
  }
  Outgoing *pop() {
    Outgoing *message = first_;
    first_ = message->next;
    if (first_ == nullptr) end_ = &first_;
    return message;
  }
  bool remove(const Outgoing &message) {
    for (Outgoing **link = &first_; *link != nullptr; link = &(*link)->next) {
      if (*link != &message) continue;
      *link = message.next;
      if (*link == nullptr) end_ = link;
      return true;
    }
    return false;
  }

 private:
  Outgoing *first_ = nullptr;
  Outgoing **end_ = &first_;
};

}  // namespace dicomm
