#include "base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <span>

#include "base/hash.h"

namespace roost {
namespace {

// Notes: a header, the owner's name and the value, each padded to four bytes.
std::string id_in(const char* notes, size_t n_bytes) {
  const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= n_bytes;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const char* name = notes + at + sizeof note;
    const char* value = name + padded(note.n_namesz);
    at += sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (at > n_bytes || note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof "GNU" ||
        std::memcmp(name, "GNU", sizeof "GNU") != 0)
      continue;
    return hex_of(std::as_bytes(std::span(value, note.n_descsz)));
  }
  return "";
}

// Called for each loaded object, the program itself first.
int visit(dl_phdr_info* object, size_t, void* out) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto address = static_cast<uintptr_t>(object->dlpi_addr + part.p_vaddr);
    std::string id = id_in(reinterpret_cast<const char*>(address), part.p_memsz);
    if (id.empty()) continue;
    *static_cast<std::string*>(out) = std::move(id);
    break;
  }
  return 1;  // no further object
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(visit, &id);
  return id;
}

}  // namespace roost
