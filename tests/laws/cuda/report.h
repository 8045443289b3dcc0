// What a law program found: laws, observations and figures; printed as a table and written as JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace roost::laws {

struct Law {
  std::string id;
  std::string claim;
  bool is_relied_on;  // a failure fails the program
  uint64_t n_compared = 0;
  uint64_t n_different = 0;
  std::string first_difference = {};

  bool holds() const { return n_compared > 0 && n_different == 0; }

  // Bits, not values: the laws speak of equal results. where() gives the place as a string.
  template <typename Where>
  void compare(float got, float want, const Where& where) {
    n_compared += 1;
    if (std::memcmp(&got, &want, sizeof got) == 0) return;
    if (n_different++ == 0) {
      char text[80];
      std::snprintf(text, sizeof text, ": %a instead of %a", got, want);
      first_difference = where() + text;
    }
  }
  void expect(bool is_true, const std::string& what) {
    n_compared += 1;
    if (!is_true && n_different++ == 0) first_difference = what;
  }
};

struct Observation {
  std::string id;
  std::string text;
};

struct Figure {
  std::string id;
  double value;
  std::string unit;
};

struct Report {
  std::vector<Law> laws;
  std::vector<Observation> device, accumulator;
  std::vector<Figure> figures;

  bool is_good() const {
    for (const Law& law : laws)
      if (law.is_relied_on && !law.holds()) return false;
    return !laws.empty();
  }
};

inline std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

inline void print(const Report& report) {
  for (const Observation& o : report.device)
    std::printf("%-34s %s\n", o.id.c_str(), o.text.c_str());
  std::printf("\n%-4s %-7s %-8s %12s %10s  claim\n", "law", "relied", "result", "compared",
              "differ");
  for (const Law& law : report.laws) {
    std::printf("%-4s %-7s %-8s %12llu %10llu  %s\n", law.id.c_str(),
                law.is_relied_on ? "yes" : "no", law.holds() ? "holds" : "FAILS",
                static_cast<unsigned long long>(law.n_compared),
                static_cast<unsigned long long>(law.n_different), law.claim.c_str());
    if (!law.first_difference.empty())
      std::printf("     first: %s\n", law.first_difference.c_str());
  }
  std::printf("\naccumulator\n");
  for (const Observation& o : report.accumulator)
    std::printf("  %-38s %s\n", o.id.c_str(), o.text.c_str());
  std::printf("\nrates\n");
  for (const Figure& f : report.figures)
    std::printf("  %-46s %10.2f %s\n", f.id.c_str(), f.value, f.unit.c_str());
}

inline bool write_json(const Report& report, const char* path) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return false;
  const auto observations = [&](const char* name, const std::vector<Observation>& list) {
    std::fprintf(file, "\"%s\":{", name);
    const char* comma = "";
    for (const Observation& o : list) {
      std::fprintf(file, "%s\n  %s:%s", comma, quoted(o.id).c_str(), quoted(o.text).c_str());
      comma = ",";
    }
    std::fprintf(file, "},\n");
  };
  std::fprintf(file, "{\"all_relied_laws_hold\":%s,\n", report.is_good() ? "true" : "false");
  observations("device", report.device);
  std::fprintf(file, "\"laws\":[");
  const char* comma = "";
  for (const Law& law : report.laws) {
    std::fprintf(file,
                 "%s\n  {\"id\":%s,\"claim\":%s,\"relied_on\":%s,\"holds\":%s,\"compared\":%llu,"
                 "\"different\":%llu,\"first_difference\":%s}",
                 comma, quoted(law.id).c_str(), quoted(law.claim).c_str(),
                 law.is_relied_on ? "true" : "false", law.holds() ? "true" : "false",
                 static_cast<unsigned long long>(law.n_compared),
                 static_cast<unsigned long long>(law.n_different),
                 quoted(law.first_difference).c_str());
    comma = ",";
  }
  std::fprintf(file, "],\n");
  observations("accumulator", report.accumulator);
  std::fprintf(file, "\"rates\":[");
  comma = "";
  for (const Figure& f : report.figures) {
    std::fprintf(file, "%s\n  {\"id\":%s,\"value\":%.6g,\"unit\":%s}", comma, quoted(f.id).c_str(),
                 f.value, quoted(f.unit).c_str());
    comma = ",";
  }
  std::fprintf(file, "]}\n");
  return std::fclose(file) == 0;
}

}  // namespace roost::laws
