#include "api/guard.h"
#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "comm/context.h"

namespace dicomm {
Store &unwrap(dicomm_store &store);  // api/store.cc
}

struct dicomm_context {
  std::shared_ptr<dicomm::Context> context;
};

struct dicomm_comm {
  std::shared_ptr<dicomm::Context> context;  // closed or not, it must outlive the communicator
  std::unique_ptr<dicomm::Communicator> comm;
};

using dicomm::guard;
using dicomm::Status;

namespace {

Status alive(const dicomm::Context &context) {
  if (context.closed()) return Status::make(DICOMM_INVALID_ARGUMENT, "the context is closed");
  if (!context.forked()) return {};
  return Status::make(DICOMM_NOT_SUPPORTED,
                      "this context belongs to the parent process; a forked child must make its own");
}

Status alive(const dicomm_comm *comm) {
  if (comm == nullptr) return Status::make(DICOMM_INVALID_ARGUMENT, "the communicator is null");
  return alive(comm->comm->context());
}

Status read_chip(const dicomm_chip *given, dicomm::ChipOptions &out) {
  if (given == nullptr) return {};
  const auto chip = dicomm::read_options(given);
  const std::string vendor = dicomm::text_or_empty(chip.vendor);
  const std::string role = dicomm::text_or_empty(chip.role);
  if (!vendor.empty()) out.vendor = vendor;
  if (!role.empty()) out.role = role;
  out.index = chip.index;
  out.island = dicomm::text_or_empty(chip.island);
  out.library = dicomm::text_or_empty(chip.library);
  out.simulated = chip.simulation != nullptr;
  if (!out.simulated) return {};
  if (vendor.empty())
    return Status::make(DICOMM_INVALID_ARGUMENT, "a simulated chip needs a brand as vendor");
  out.simulation = dicomm::read_options(chip.simulation);
  out.lacks = dicomm::text_or_empty(out.simulation.lacks);
  return {};
}

}  // namespace

extern "C" {

dicomm_status dicomm_context_create(const dicomm_context_options *given, dicomm_context **out) {
  return guard([&]() -> Status {
    if (out == nullptr) return Status::make(DICOMM_INVALID_ARGUMENT, "out is required");
    const auto options = dicomm::read_options(given);
    dicomm::ContextOptions context;
    context.interface = dicomm::text_or_empty(options.interface);
    context.route_to = dicomm::text_or_empty(options.route_to);
    context.paths = dicomm::text_or_empty(options.paths);
    context.rdma = dicomm::text_or_empty(options.rdma);
    if (options.secret != nullptr) {
      const auto *from = reinterpret_cast<const std::byte *>(options.secret);
      context.secret.assign(from, from + options.secret_len);
    }
    if (options.sockets_per_peer != 0) context.sockets_per_peer = options.sockets_per_peer;
    if (options.eager_bytes != 0) context.eager_bytes = options.eager_bytes;
    if (options.handshake_timeout_ns > 0) context.handshake_timeout = options.handshake_timeout_ns;
    context.log_level = options.log_level;
    context.spin = given == nullptr ? -1 : options.spin_ns;
    DICOMM_TRY(read_chip(options.chip, context.chip));
    auto made = std::make_unique<dicomm_context>();
    made->context = std::make_shared<dicomm::Context>(std::move(context));
    DICOMM_TRY(made->context->open());
    *out = made.release();
    return {};
  });
}

size_t dicomm_context_info(dicomm_context *context, char *buf, size_t cap) {
  return dicomm::answer(context->context->info(), buf, cap);
}

void dicomm_context_after_fork(dicomm_context *context) { context->context->after_fork(); }

void dicomm_context_close(dicomm_context *context) {
  // A forked child leaks the object: its lock may be held by a thread that exists only in the parent.
  if (context == nullptr || context->context->forked()) return;
  context->context->close();
  delete context;
}

dicomm_status dicomm_comm_create(dicomm_context *context, dicomm_store *store, const char *prefix,
                                 int32_t rank, int32_t size, const dicomm_comm_options *given,
                                 dicomm_comm **out) {
  return guard([&]() -> Status {
    if (context == nullptr || store == nullptr || prefix == nullptr || out == nullptr) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "context, store, prefix and out are required");
    }
    DICOMM_TRY(alive(*context->context));
    const auto options = dicomm::read_options(given);
    dicomm::Communicator::Setup setup;
    setup.name = dicomm::text_or_empty(options.name);
    setup.algorithms = dicomm::text_or_empty(options.algorithms);
    DICOMM_TRY(dicomm::read_wire(options.wire_dtype, setup.wire));
    setup.timeout = dicomm::timeout_or(options.timeout_ns, dicomm::kDefaultTimeout);
    const dicomm::Nanos init = dicomm::timeout_or(options.init_timeout_ns, setup.timeout);
    const dicomm::Nanos deadline = init == dicomm::kNever ? init : dicomm::deadline_after(init);
    dicomm::Rules rules;
    DICOMM_TRY(dicomm::Rules::parse(setup.algorithms, rules));
    DICOMM_TRY(
        dicomm::bootstrap(*context->context, dicomm::unwrap(*store), prefix, rank, size, deadline, setup));
    auto made = std::make_unique<dicomm_comm>();
    made->context = context->context;
    made->comm = std::make_unique<dicomm::Communicator>(*context->context, std::move(setup));
    DICOMM_TRY(made->comm->open(deadline));
    *out = made.release();
    return {};
  });
}

dicomm_status dicomm_comm_split(dicomm_comm *comm, int32_t color, int32_t key,
                                const dicomm_comm_options *given, dicomm_comm **out) {
  return guard([&]() -> Status {
    DICOMM_TRY(alive(comm));
    if (out == nullptr) return Status::make(DICOMM_INVALID_ARGUMENT, "out is required");
    dicomm_comm_options options = dicomm::read_options(given);
    options.timeout_ns = dicomm::timeout_or(options.timeout_ns, DICOMM_TIMEOUT_DEFAULT);
    options.init_timeout_ns = dicomm::timeout_or(options.init_timeout_ns, DICOMM_TIMEOUT_DEFAULT);
    auto made = std::make_unique<dicomm_comm>();
    made->context = comm->context;
    *out = nullptr;
    DICOMM_TRY(comm->comm->split(color, key, &options, made->comm));
    if (made->comm) *out = made.release();
    return {};
  });
}

size_t dicomm_comm_info(dicomm_comm *comm, char *buf, size_t cap) {
  return dicomm::answer(comm->comm->info(), buf, cap);
}

void dicomm_comm_set_timeout(dicomm_comm *comm, int64_t timeout_ns) {
  comm->comm->set_timeout(dicomm::timeout_or(timeout_ns, dicomm::kDefaultTimeout));
}

void dicomm_comm_abort(dicomm_comm *comm, const char *reason) {
  guard([&]() -> Status {
    DICOMM_TRY(alive(comm));
    comm->comm->abort(dicomm::text_or_empty(reason));
    return {};
  });
}

void dicomm_comm_close(dicomm_comm *comm) {
  if (comm == nullptr) return;
  if (comm->comm->context().forked()) {
    comm->comm.release();  // leaked like its context
  }
  delete comm;
}

dicomm_status dicomm_start(dicomm_comm *comm, const dicomm_op *given, dicomm_request **out) {
  return guard([&]() -> Status {
    DICOMM_TRY(alive(comm));
    if (given == nullptr || out == nullptr)
      return Status::make(DICOMM_INVALID_ARGUMENT, "op and request are required");
    dicomm::Request *request = nullptr;
    DICOMM_TRY(comm->comm->start(dicomm::read_options(given), request));
    *out = reinterpret_cast<dicomm_request *>(request);
    return {};
  });
}
}
