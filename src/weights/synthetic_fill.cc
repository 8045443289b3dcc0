// The values of synthetic tensors, as the header states them.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "weights/synthetic.h"

namespace roost {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The words of one tensor.
struct Words {
  uint64_t key;
  Words(uint64_t seed, uint64_t id) : key(mix(mix(seed + kGolden) ^ id)) {}
  uint64_t operator()(uint64_t i) const { return mix(key + (i + 1) * kGolden); }
};

// 2^16 times a factor in [0.9, 1.1), by 16 random bits.
float jitter(uint64_t h) {
  return static_cast<float>(58982 + ((h & 0xFFFF) * 13107 >> 16));
}

uint16_t scale_bits(float base, uint64_t h) {
  return bf16_from_f32(base * jitter(h));
}

// ln and exp from additions, products and quotients alone: the same bits on every machine, which a
// library function does not promise.
double portable_ln(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  const double s = (mantissa - 1) / (mantissa + 1);      // ln m = 2·atanh(s), |s| <= 1/3
  double power = s, sum = 0;
  for (int k = 1; k <= 51; k += 2) {  // 3^-51 is below the last bit
    sum += power / k;
    power *= s * s;
  }
  return exponent * 0.69314718055994530942 + 2 * sum;
}

double portable_exp(double value) {  // |value| <= 16
  const double x = value / 256;
  double term = 1, sum = 1;
  for (int k = 1; k <= 12; ++k) {
    term *= x / k;
    sum += term;
  }
  for (int i = 0; i < 8; ++i) sum *= sum;
  return sum;
}

float a_log(uint64_t word) {
  return static_cast<float>(portable_ln(static_cast<double>(2 * (word >> 48) + 1) / 8192));
}

uint16_t dt_bias_bits(uint64_t word) {
  const double t = (static_cast<double>(word >> 48) + 0.5) / 65536;
  const double ln_dt = 2.30258509299404568402 * (2 * t - 3);
  const double dt = portable_exp(ln_dt);
  // ln(e^dt - 1) = ln dt + ln((e^dt - 1)/dt); the quotient by its series, dt <= 0.1.
  double term = 1, quotient = 1;
  for (int k = 2; k <= 14; ++k) {
    term *= dt / k;
    quotient += term;
  }
  return bf16_from_f64(ln_dt + portable_ln(quotient));
}

// Calls value(i) for the elements of [first_byte, …) and stores them in order.
template <class T, class Value>
void fill_elements(uint64_t first_byte, std::span<std::byte> out, const Value& value) {
  const uint64_t first = first_byte / sizeof(T);
  const size_t n = out.size() / sizeof(T);
  for (size_t i = 0; i < n; ++i) {
    const T element = value(first + i);
    std::memcpy(out.data() + i * sizeof(T), &element, sizeof(T));
  }
}

// Four bf16 from each word.
template <class Value>
void fill_quads(const Words& words, uint64_t first_byte, std::span<std::byte> out,
                const Value& value) {
  uint64_t word_idx = first_byte / 8;
  for (size_t at = 0; at < out.size(); at += 8, ++word_idx) {
    const uint64_t word = words(word_idx);
    uint16_t quad[4];
    for (int k = 0; k < 4; ++k) quad[k] = value(word >> (16 * k));
    std::memcpy(out.data() + at, quad, out.size() - at < 8 ? out.size() - at : 8);
  }
}

void fill_codes(const Words& words, uint64_t first_byte, std::span<std::byte> out) {
  uint64_t word_idx = first_byte / 8;
  for (size_t at = 0; at < out.size(); at += 8, ++word_idx) {
    const uint64_t word = words(word_idx);
    std::memcpy(out.data() + at, &word, out.size() - at < 8 ? out.size() - at : 8);
  }
}

}  // namespace

uint64_t synthetic_word(uint64_t seed, uint64_t tensor_id, uint64_t word_idx) {
  return Words(seed, tensor_id)(word_idx);
}

void fill_synthetic(const SyntheticTensor& tensor, uint64_t seed, uint64_t first_byte,
                    std::span<std::byte> out) {
  ROOST_CHECK(first_byte % 64 == 0 && first_byte + out.size() <= tensor.n_bytes());
  const Words words(seed, tensor.id);
  switch (tensor.kind) {
    case SyntheticKind::kCodes:
      return fill_codes(words, first_byte, out);
    case SyntheticKind::kScales:
      return fill_quads(words, first_byte, out,
                        [&](uint64_t h) { return scale_bits(tensor.base, h); });
    case SyntheticKind::kBiases: {
      const auto code_max = static_cast<float>((1 << tensor.bits) - 1);
      return fill_quads(words, first_byte, out, [&](uint64_t h) {
        // 8 bits of scale times 8 of the largest code: exact, so this rounds once.
        return bf16_from_f32(f32_from_bf16(scale_bits(tensor.base, h)) * -code_max * 0.5f);
      });
    }
    case SyntheticKind::kNorm:
      return fill_quads(words, first_byte, out,
                        [](uint64_t h) { return bf16_from_f32(jitter(h) * 0x1p-16f); });
    case SyntheticKind::kConvTaps:
      return fill_elements<uint16_t>(first_byte, out, [&](uint64_t i) {
        const uint64_t w = words(i);
        const auto sum = static_cast<int64_t>((w & 0xFFFF) + (w >> 16 & 0xFFFF) +
                                              (w >> 32 & 0xFFFF) + (w >> 48));
        return bf16_from_f32(tensor.base * static_cast<float>(sum - 131'070));
      });
    case SyntheticKind::kALog:
      return fill_elements<float>(first_byte, out, [&](uint64_t i) { return a_log(words(i)); });
    case SyntheticKind::kDtBias:
      return fill_elements<uint16_t>(first_byte, out,
                                     [&](uint64_t i) { return dt_bias_bits(words(i)); });
  }
}

}  // namespace roost
