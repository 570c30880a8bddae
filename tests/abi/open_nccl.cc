// Compiled and run by test_nccl.py: NVIDIA's library as dicomm opens it, on a machine that need not have a
// GPU.
//
//   open_nccl FILE    prints a line for each thing it tried
#include <cstdio>

#include "base/clock.h"
#include "ccl/nccl/nccl.h"
#include "host_device.h"

int main(int count, char **arguments) {
  using namespace dicomm;
  if (count != 2) return 2;
  nccl::Member member = nccl::members().front();
  member.files = {arguments[1]};
  std::unique_ptr<Ccl> library;
  const Status opened = open_nccl(member, library);
  std::printf("open: %s\n", opened.message().c_str());
  if (!opened.ok()) return 1;
  const CclCapabilities can = library->capabilities();
  std::printf("describe: %s\nversion: %d\n", library->describe().c_str(), can.version);
  std::printf("send_recv: %d\naborts: %d\ntells_errors: %d\n", can.send_recv, can.aborts, can.tells_errors);
  std::printf("float8 sum: %d\npremul_sum: %d\n", can.reduces(DICOMM_FLOAT8_E4M3FN, DICOMM_SUM),
              can.reduces(DICOMM_FLOAT32, DICOMM_PREMUL_SUM));
  CclId first, second;
  const Status made = library->make_id(first);
  std::printf("id: %s\n", made.message().c_str());
  if (!made.ok() || !library->make_id(second).ok() || first == second) return 1;
  // A test's device is no GPU: joining fails with the vendor's reason, in time.
  test::HostDevice device("nvidia");
  std::unique_ptr<CclGroup> group;
  const Nanos start = now();
  const Status joined = library->join(first, 0, 1, device, 20 * kSecond, group);
  const Failure *failure = joined.failure();
  std::printf("join: %s\ndomain: %s\ncode: %d\nseconds: %.1f\n", joined.message().c_str(),
              failure != nullptr ? failure->foreign_domain.c_str() : "",
              failure != nullptr ? failure->foreign_code : 0,
              static_cast<double>(now() - start) / static_cast<double>(kSecond));
  return 0;
}
