// PointToPoint: the Request of one send or receive.
#pragma once

#include "exec/blocks.h"
#include "exec/scratch.h"
#include "p2p/messenger.h"
#include "progress/engine.h"

namespace dicomm {

class PointToPoint final : public Request, private TransferOwner {
 public:
  // `peer` may be ANY_SOURCE for a receive. Throws std::bad_alloc.
  PointToPoint(Engine &engine, Messenger &messenger, Channel &channel, dicomm_opcode opcode, int peer,
               uint64_t tag, dicomm_dtype dtype, ScratchPool &memory, BlockList blocks);

  void start();  // lock held; the request may be done on return
  void fail(const Status &why) override;
  bool cancel() override;
  std::string waiting_for() const override;
  bool needs(int rank, bool gone) const override;

 private:
  void on_sent(SendTask &task, const Status &status) override;
  void on_received(RecvTask &task, const Status &status) override;
  void end(const Status &status);
  bool sending() const { return opcode == DICOMM_SEND; }
  Status describe(const Status &why) const;

  Engine &engine_;
  Messenger &messenger_;
  Channel &channel_;
  BlockList blocks_;
  Scratch packed_;
  SendTask send_;
  RecvTask receive_;
};

}  // namespace dicomm
