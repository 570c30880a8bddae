#include "comm/hello.h"

#include "base/bytes.h"

namespace dicomm {

namespace {

// Every protocol's record begins with the number, the ABI's, and from 2 on the texts version and host, so
// that ranks of different releases can name one another.
constexpr uint32_t kProtocol = 2;
constexpr uint32_t kMostNics = 64;
constexpr size_t kMostText = 256, kMostAddress = 4096;

// ByteReader with limits: what is too long makes it as bad as what is cut.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> bytes) : reader_(bytes) {}
  template <class T>
  T get() {
    return reader_.get<T>();
  }
  std::string text(size_t most = kMostText) {
    std::string value = reader_.text();
    good_ = good_ && value.size() <= most;
    return good_ ? value : std::string();
  }
  bool flag() {
    const auto value = reader_.get<uint8_t>();
    expect(value <= 1);
    return value == 1;
  }
  void expect(bool fact) { good_ = good_ && fact; }
  bool ok() const { return good_ && reader_.ok(); }
  bool at_end() const { return reader_.at_end(); }

 private:
  ByteReader reader_;
  bool good_ = true;
};

void write_chip(ByteWriter &writer, const ChipInfo &chip) {
  writer.text(chip.vendor).text(chip.name).text(chip.arch).text(chip.library).put(chip.library_version);
  writer.put(chip.memory_bytes).put(chip.dtypes).put(chip.index).text(chip.id);
  writer.put(chip.reduces).put(uint8_t{chip.send_recv}).put(uint8_t{chip.converts});
  writer.text(chip.island).text(chip.role).put(uint8_t{chip.simulated});
}

ChipInfo read_chip(RecordReader &reader) {
  ChipInfo chip;
  chip.vendor = reader.text();
  chip.name = reader.text();
  chip.arch = reader.text();
  chip.library = reader.text();
  chip.library_version = reader.get<uint32_t>();
  chip.memory_bytes = reader.get<uint64_t>();
  chip.dtypes = reader.get<uint64_t>();
  chip.index = reader.get<int32_t>();
  chip.id = reader.text();
  chip.reduces = reader.get<std::array<uint64_t, kReduces>>();
  chip.send_recv = reader.flag();
  chip.converts = reader.flag();
  chip.island = reader.text();
  chip.role = reader.text();
  chip.simulated = reader.flag();
  reader.expect(!chip.vendor.empty() && chip.index >= 0 && (chip.dtypes & ~all_dtypes()) == 0);
  reader.expect(chip.role == "worker" || chip.role == "reducer");
  return chip;
}

void read_nics(RecordReader &reader, std::vector<Nic> &nics) {
  const auto count = reader.get<uint32_t>();
  reader.expect(count <= kMostNics);
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    Nic nic;
    nic.name = reader.text();
    nic.kind = reader.text();
    nic.mbit_s = reader.get<uint32_t>();
    nic.numa = reader.get<int32_t>();
    nics.push_back(std::move(nic));
  }
}

Status check_release(int rank, uint32_t protocol, uint32_t abi, const RankInfo &theirs) {
  const std::string who =
      theirs.host.empty() ? concat("rank ", rank) : concat("rank ", rank, " (", theirs.host, ")");
  if (protocol != kProtocol || abi != DICOMM_ABI_VERSION) {
    return Status::make(DICOMM_PROTOCOL, who, " speaks protocol ", protocol, " (ABI ", abi,
                        ") and this rank protocol ", kProtocol, " (ABI ", DICOMM_ABI_VERSION + 0,
                        "); install the same dicomm on all hosts");
  }
  // Ranks agree on schedules without talking, which takes the same algorithms on all of them.
  if (theirs.version != DICOMM_VERSION) {
    return Status::make(DICOMM_PROTOCOL, who, " has dicomm ", theirs.version, " and this rank ",
                        DICOMM_VERSION, "; install the same dicomm on all hosts");
  }
  return {};
}

}  // namespace

std::vector<std::byte> write_hello(const Hello &hello) {
  const auto &[address, keyed, info] = hello;
  ByteWriter writer;
  writer.put(kProtocol).put(uint32_t{DICOMM_ABI_VERSION}).text(info.version).text(info.host);
  writer.put(address.id).put(uint8_t{keyed}).put(keyed ? Key{} : address.key);
  writer.put(address.process).text(address.address);
  writer.put(info.numa).put(static_cast<uint32_t>(info.nics.size()));
  for (const Nic &nic : info.nics) writer.text(nic.name).text(nic.kind).put(nic.mbit_s).put(nic.numa);
  write_chip(writer, info.chip);
  return writer.take();
}

Status read_hello(int rank, std::span<const std::byte> record, Hello &out) {
  RecordReader reader(record);
  const auto protocol = reader.get<uint32_t>();
  const auto abi = reader.get<uint32_t>();
  const Status bad = Status::make(DICOMM_PROTOCOL, "rank ", rank,
                                  " published a record that is cut, too long or not dicomm's");
  if (!reader.ok()) return bad;
  if (protocol >= 2) {
    out.info.version = reader.text();
    out.info.host = reader.text();
    if (!reader.ok()) return bad;
  }
  DICOMM_TRY(check_release(rank, protocol, abi, out.info));
  out.address.host = out.info.host;
  out.address.id = reader.get<ContextId>();
  out.keyed = reader.flag();
  out.address.key = reader.get<Key>();
  out.address.process = reader.get<uint64_t>();
  out.address.address = reader.text(kMostAddress);
  out.info.numa = reader.get<int32_t>();
  read_nics(reader, out.info.nics);
  out.info.chip = read_chip(reader);
  return reader.ok() && reader.at_end() ? Status() : bad;
}

}  // namespace dicomm
