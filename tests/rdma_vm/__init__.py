"""A virtual machine with RDMA devices, for hosts that have none: `python -m tests.rdma_vm -- COMMAND`."""
