// MPI as its implementations' mpi.h declare it: the functions, and what the predefined handles are.
//
// Open MPI's handles are addresses of objects that the library exports, MPICH's (and Intel MPI's) are 32-bit
// numbers. Both travel in a Handle, an integer register wide enough for either; where MPI writes a handle, it
// writes into one that was zero. That holds on the little-endian 64-bit machines dicomm runs on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dicomm/dicomm.h"

namespace dicomm::mpi {

using Handle = uintptr_t;

// X(our dtype, Open MPI's symbol behind ompi_mpi_, MPICH's number)
#define DICOMM_MPI_DTYPES(X)                \
  X(UINT8, uint8_t, 0x4c00013b)             \
  X(INT8, int8_t, 0x4c000137)               \
  X(UINT16, uint16_t, 0x4c00023c)           \
  X(INT16, int16_t, 0x4c000238)             \
  X(UINT32, uint32_t, 0x4c00043d)           \
  X(INT32, int32_t, 0x4c000439)             \
  X(UINT64, uint64_t, 0x4c00083e)           \
  X(INT64, int64_t, 0x4c00083a)             \
  X(BOOL, c_bool, 0x4c00013f)               \
  X(FLOAT32, float, 0x4c00040a)             \
  X(FLOAT64, double, 0x4c00080b)            \
  X(COMPLEX64, c_float_complex, 0x4c000840) \
  X(COMPLEX128, c_double_complex, 0x4c001041)

// X(our name, Open MPI's symbol behind ompi_mpi_, MPICH's number)
#define DICOMM_MPI_OBJECTS(X)                 \
  X(world, comm_world, 0x44000000)            \
  X(errors_return, errors_return, 0x54000001) \
  X(max, op_max, 0x58000001)                  \
  X(min, op_min, 0x58000002)                  \
  X(sum, op_sum, 0x58000003)                  \
  X(prod, op_prod, 0x58000004)                \
  X(land, op_land, 0x58000005)                \
  X(band, op_band, 0x58000006)                \
  X(lor, op_lor, 0x58000007)                  \
  X(bor, op_bor, 0x58000008)                  \
  X(lxor, op_lxor, 0x58000009)                \
  X(bxor, op_bxor, 0x5800000a)

// X(name behind MPI_, argument types...); all return a code
#define DICOMM_MPI_FUNCTIONS(X)                                                   \
  X(Init_thread, int *, char ***, int, int *)                                     \
  X(Initialized, int *)                                                           \
  X(Finalized, int *)                                                             \
  X(Finalize, void)                                                               \
  X(Query_thread, int *)                                                          \
  X(Get_version, int *, int *)                                                    \
  X(Get_library_version, char *, int *)                                           \
  X(Error_string, int, char *, int *)                                             \
  X(Comm_rank, Handle, int *)                                                     \
  X(Comm_size, Handle, int *)                                                     \
  X(Comm_group, Handle, Handle *)                                                 \
  X(Group_incl, Handle, int, const int *, Handle *)                               \
  X(Group_free, Handle *)                                                         \
  X(Comm_create_group, Handle, Handle, int, Handle *)                             \
  X(Comm_set_errhandler, Handle, Handle)                                          \
  X(Comm_free, Handle *)                                                          \
  X(Isend, const void *, int, Handle, int, int, Handle, Handle *)                 \
  X(Irecv, void *, int, Handle, int, int, Handle, Handle *)                       \
  X(Test, Handle *, int *, void *)                                                \
  X(Cancel, Handle *)                                                             \
  X(Ibarrier, Handle, Handle *)                                                   \
  X(Ibcast, void *, int, Handle, int, Handle, Handle *)                           \
  X(Iallreduce, const void *, void *, int, Handle, Handle, Handle, Handle *)      \
  X(Ireduce, const void *, void *, int, Handle, Handle, int, Handle, Handle *)    \
  X(Iallgather, const void *, int, Handle, void *, int, Handle, Handle, Handle *) \
  X(Ireduce_scatter_block, const void *, void *, int, Handle, Handle, Handle, Handle *)

struct Functions {
#define DICOMM_MPI_POINTER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  DICOMM_MPI_FUNCTIONS(DICOMM_MPI_POINTER)
#undef DICOMM_MPI_POINTER
};

// What differs between the two kinds of handles.
struct Abi {
  bool numbers = false;                       // MPICH's
  int any_source = -1;                        // -2 in MPICH
  void *status_ignore = nullptr;              // 1 in MPICH
  Handle dtypes[DICOMM_COMPLEX128 + 1] = {};  // 0 where MPI has no such type
#define DICOMM_MPI_MEMBER(name, ...) Handle name = 0;
  DICOMM_MPI_OBJECTS(DICOMM_MPI_MEMBER)
#undef DICOMM_MPI_MEMBER
};

inline constexpr int kSuccess = 0;
inline constexpr int kThreadMultiple = 3;
inline constexpr size_t kMostText = 8192;  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI's is smaller

}  // namespace dicomm::mpi
