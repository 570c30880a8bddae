#include "p2p/channel.h"

#include <algorithm>

namespace dicomm {

std::unique_ptr<Unexpected> Channel::post(RecvTask &task) {
  std::deque<std::unique_ptr<Unexpected>> *best = nullptr;
  size_t at = 0;
  for (auto &[source, queue] : unexpected_) {
    if (task.peer != DICOMM_ANY_SOURCE && task.peer != source) continue;
    const auto found =
        std::find_if(queue.begin(), queue.end(), [&](const auto &m) { return m->wire.key() == task.key; });
    if (found == queue.end()) continue;
    if (best == nullptr || (*found)->order < (*best)[at]->order) {
      best = &queue;
      at = static_cast<size_t>(found - queue.begin());
    }
  }
  if (best != nullptr) {
    auto message = std::move((*best)[at]);
    best->erase(best->begin() + static_cast<std::ptrdiff_t>(at));
    return message;
  }
  task.state = RecvTask::State::posted;
  if (task.order == 0) task.order = ++orders_;  // a receive that is posted again keeps its place
  auto &queue = task.peer == DICOMM_ANY_SOURCE ? posted_any_ : posted_[task.peer];
  const auto later = [&](const RecvTask *other) { return other->order > task.order; };
  queue.insert(std::find_if(queue.begin(), queue.end(), later), &task);
  return nullptr;
}

RecvTask *Channel::match(int source, const MatchKey &key) {
  const auto fits = [&](const RecvTask *task) { return task->key == key; };
  auto &exact = posted_[source];
  const auto one = std::find_if(exact.begin(), exact.end(), fits);
  const auto any = std::find_if(posted_any_.begin(), posted_any_.end(), fits);
  const bool has_one = one != exact.end(), has_any = any != posted_any_.end();
  if (!has_one && !has_any) return nullptr;
  const bool take_any = has_any && (!has_one || (*any)->order < (*one)->order);
  RecvTask *task = take_any ? *any : *one;
  if (take_any) {
    posted_any_.erase(any);
  } else {
    exact.erase(one);
  }
  return task;
}

Unexpected &Channel::keep(std::unique_ptr<Unexpected> message) {
  message->order = ++orders_;
  auto &queue = unexpected_[static_cast<int>(message->wire.source)];
  queue.push_back(std::move(message));
  return *queue.back();
}

void Channel::remove(RecvTask &task) {
  std::erase(task.peer == DICOMM_ANY_SOURCE ? posted_any_ : posted_[task.peer], &task);
}

void Channel::withdraw(const Link &link, uint64_t id) {
  for (auto &[source, queue] : unexpected_) {
    std::erase_if(queue, [&](const auto &m) {
      return m->link == &link && m->wire.type == MessageType::rts && m->wire.id == id;
    });
  }
}

void Channel::forget(const Link &link) {
  for (auto &[source, queue] : unexpected_) {
    std::erase_if(queue, [&](const auto &m) { return m->link == &link && !m->complete; });
  }
}

}  // namespace dicomm
