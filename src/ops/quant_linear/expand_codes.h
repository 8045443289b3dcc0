// Codes whose widths do not divide 16 bits, unpacked. Included once per instruction set, inside the
// kernels' foreach_target section, after <hwy/highway.h>.
#if defined(ROOST_OPS_QUANT_LINEAR_EXPAND_CODES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOST_OPS_QUANT_LINEAR_EXPAND_CODES_H_
#undef ROOST_OPS_QUANT_LINEAR_EXPAND_CODES_H_
#else
#define ROOST_OPS_QUANT_LINEAR_EXPAND_CODES_H_
#endif

#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {

// Codes of 3, 5 or 6 bits as 16-bit integers in order; eight of them fill kBits bytes.
template <int kBits>
HWY_INLINE void expand_codes_of(const uint8_t* codes, int64_t n, uint16_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<uint64_t, 8> du64;
  const hn::Rebind<uint16_t, decltype(du64)> du16;
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(du64));
  const auto bits_before = hn::Mul(hn::Iota(du64, 0), hn::Set(du64, uint64_t{kBits}));
  const auto mask = hn::Set(du64, (uint64_t{1} << kBits) - 1);
  for (int64_t i = 0; i < n; i += 8, codes += kBits) {
    uint64_t packed = 0;
    std::memcpy(&packed, codes, kBits);
    for (int64_t j = 0; j < 8; j += n_lanes, packed >>= n_lanes * kBits) {
      const auto each = hn::And(hn::Shr(hn::Set(du64, packed), bits_before), mask);
      hn::StoreU(hn::TruncateTo(du16, each), du16, out + i + j);
    }
  }
}

HWY_INLINE void expand_codes(const uint8_t* codes, int bits, int64_t n, uint16_t* out) {
  return bits == 3   ? expand_codes_of<3>(codes, n, out)
         : bits == 5 ? expand_codes_of<5>(codes, n, out)
                     : expand_codes_of<6>(codes, n, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#endif  // per target
