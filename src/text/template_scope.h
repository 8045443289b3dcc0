// The scopes of a rendering: names and values, each scope inside another one.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "text/template_ast.h"
#include "text/template_value.h"

namespace roost::jinja {

struct Scope {
  Scope* around = nullptr;
  bool is_kept = false;  // a macro lives in it and may be called when the scope has ended
  std::vector<std::pair<Symbol, Value>> bindings;

  void set(Symbol name, const Value& value);
  const Value* find(Symbol name) const;  // in this scope alone
};

// Makes scopes and takes ended ones back for the next, but for those that are kept.
class ScopePool {
 public:
  explicit ScopePool(Heap& heap) : heap_(heap) {}

  // A scope that ends with this object.
  class Lease {
   public:
    Lease(ScopePool& pool, Scope* scope) : pool_(pool), scope_(scope) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    ScopePool& pool_;
    Scope* scope_;
  };
  Result<Scope*> open(Scope* around);

 private:
  Heap& heap_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_;
};

// Keeps a scope and those around it.
void keep(Scope* scope);

}  // namespace roost::jinja
