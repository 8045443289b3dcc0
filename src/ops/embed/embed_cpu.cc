// embed on the CPU: the codes of a row are unpacked eight at a time, then scaled by vectors.
#include "ops/embed/embed.h"

#include <cstring>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/embed/embed_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most eight lanes: groups and runs of codes are whole numbers of vectors.
using Lanes = hn::CappedTag<float, 8>;

HWY_INLINE float load_scale(const std::byte* from, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, from + i * 4, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from + i * 2, sizeof(bits));
  return f32_from_bf16(bits);
}

// out[i] = scale·code[i] + bias for one group. Eight codes are `bits` bytes.
HWY_INLINE void decode_group(const std::byte* codes, int bits, int group, float scale, float bias,
                             uint16_t* out) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const hn::Rebind<uint8_t, Lanes> du8;
  const auto mask = static_cast<uint8_t>((1u << bits) - 1);
  const auto scales = hn::Set(d, scale), biases = hn::Set(d, bias);
  const size_t n_lanes = hn::Lanes(d);
  for (int i = 0; i < group; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, codes + static_cast<size_t>(i) / 8 * static_cast<size_t>(bits),
                static_cast<size_t>(bits));
    uint8_t unpacked[8];
    for (int j = 0; j < 8; ++j) unpacked[j] = static_cast<uint8_t>(word >> (j * bits)) & mask;
    for (size_t j = 0; j < 8; j += n_lanes) {
      const auto code = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(du8, unpacked + j)));
      store_bf16(d, hn::MulAdd(scales, code, biases), out + i + j);
    }
  }
}

void embed_row(const QuantMatrix& table, int64_t row, uint16_t* out) {
  const std::byte* codes = table.codes + static_cast<size_t>(row) * table.row_bytes();
  if (table.format == QuantMatrix::Format::kPlain) {
    for (int64_t i = 0; i < table.n_in; ++i)
      out[i] = bf16_from_f32(load_scale(codes, table.dtype, i));
    return;
  }
  const auto group_bytes = static_cast<size_t>(table.group) * static_cast<size_t>(table.bits) / 8;
  for (int64_t g = 0; g < table.n_groups(); ++g) {
    const int64_t at = row * table.n_groups() + g;
    decode_group(codes + static_cast<size_t>(g) * group_bytes, table.bits, table.group,
                 load_scale(table.scales, table.dtype, at),
                 load_scale(table.biases, table.dtype, at), out + g * table.group);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(embed_row);

void embed_cpu(const Embed& op, CpuContext& context) {
  check(op);
  ROOST_CHECK(op.out.dtype == DType::kBF16);
  const int64_t n_rows = op.tokens.dim(0), width = op.table->n_in;
  const auto row_of = HWY_DYNAMIC_DISPATCH(embed_row);
  const auto* tokens = op.tokens.as<int32_t>();
  auto* out = op.out.as<uint16_t>();
  context.pool.parallel_for(n_rows,
                            [&](int64_t t) { row_of(*op.table, tokens[t], out + t * width); });
}

}  // namespace roost
#endif
