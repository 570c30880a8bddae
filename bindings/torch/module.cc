// What Python sees: the classes that dicomm/torch/plugin.py makes groups with.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "backend.h"

namespace py = pybind11;
using namespace dicomm::torch_plugin;  // NOLINT

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  module.attr("ABI_VERSION") = static_cast<uint32_t>(DICOMM_ABI_VERSION);
  // The base classes' Python types must be known before ours.
  py::module_::import("torch._C._distributed_c10d");

  py::class_<GroupFacts>(module, "GroupFacts")
      .def_readonly("store", &GroupFacts::store)
      .def_readonly("rank", &GroupFacts::rank)
      .def_readonly("size", &GroupFacts::size)
      .def_readonly("timeout", &GroupFacts::timeout)
      .def_readonly("name", &GroupFacts::name)
      .def_readonly("global_ranks", &GroupFacts::global_ranks)
      .def_property_readonly("info", [](const GroupFacts &group) { return group.info(); });

  py::class_<Process, std::shared_ptr<Process>>(module, "Process")
      .def(py::init([](std::string interface, std::string secret, uint32_t sockets_per_peer,
                       uint32_t log_level, uint64_t eager_bytes, int64_t spin_ns,
                       int64_t handshake_timeout_ns, std::string paths, std::string rdma,
                       std::string algorithms, int32_t wire_dtype, std::string attempt) {
             Settings settings;
             settings.interface = std::move(interface);
             settings.secret = std::move(secret);
             settings.sockets_per_peer = sockets_per_peer;
             settings.log_level = log_level;
             settings.eager_bytes = eager_bytes;
             settings.spin_ns = spin_ns;
             settings.handshake_timeout_ns = handshake_timeout_ns;
             settings.paths = std::move(paths);
             settings.rdma = std::move(rdma);
             settings.algorithms = std::move(algorithms);
             settings.wire_dtype = wire_dtype;
             settings.attempt = std::move(attempt);
             return std::make_shared<Process>(std::move(settings));
           }),
           py::kw_only(), py::arg("interface"), py::arg("secret"), py::arg("sockets_per_peer"),
           py::arg("log_level"), py::arg("eager_bytes"), py::arg("spin_ns"), py::arg("handshake_timeout_ns"),
           py::arg("paths"), py::arg("rdma"), py::arg("algorithms"), py::arg("wire_dtype"),
           py::arg("attempt"))
      .def("use_chip",
           [](Process &self, uintptr_t address, std::optional<at::Device> device) {
             self.use_chip({reinterpret_cast<const dicomm_chip *>(address), device});
           })
      .def("use_vendor_backends",
           [](Process &self, std::function<py::object(const GroupFacts &)> make) {
             self.use_vendor_backends([make = std::move(make)](const GroupFacts &group) {
               py::gil_scoped_acquire gil;
               const py::object made = make(group);
               if (made.is_none()) return VendorBackend{};
               const auto [backend, type] =
                   made.cast<std::pair<c10::intrusive_ptr<c10d::Backend>, std::string>>();
               return VendorBackend{backend, c10::Device(type).type()};
             });
           })
      .def("abort", &Process::abort)
      .def("close", &Process::close)
      .def("after_fork", &Process::after_fork);

  py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(module, "Options")
      .def("__deepcopy__", [](const GroupOptions &self, const py::dict &) {
        return c10::make_intrusive<GroupOptions>(self);
      });

  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(py::init([](std::shared_ptr<Process> process, c10::intrusive_ptr<c10d::Store> store, int rank,
                       int size, std::chrono::milliseconds timeout, std::string name,
                       std::vector<uint64_t> global_ranks) {
             GroupOptions options("dicomm", timeout);
             options.group_name = std::move(name);
             options.global_ranks_in_group = std::move(global_ranks);
             py::gil_scoped_release released;
             return c10::make_intrusive<Backend>(std::move(process), std::move(store), rank, size, options);
           }),
           py::arg("process"), py::arg("store"), py::arg("rank"), py::arg("size"), py::kw_only(),
           py::arg("timeout"), py::arg("name"), py::arg("global_ranks"))
      .def_property_readonly("options", &Backend::getBackendOptions)
      // torch calls it on ranks outside a new group, for libraries whose split is collective. Ours is not.
      .def("perform_nocolor_split", [](Backend &, const py::object &) {});
}
