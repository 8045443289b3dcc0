#include "text/template_scope.h"

namespace roost::jinja {

void Scope::set(Symbol name, const Value& value) {
  for (auto& [other, old] : bindings) {
    if (other != name) continue;
    old = value;
    return;
  }
  bindings.emplace_back(name, value);
}

const Value* Scope::find(Symbol name) const {
  for (const auto& [other, value] : bindings)
    if (other == name) return &value;
  return nullptr;
}

ScopePool::Lease::~Lease() {
  if (scope_->is_kept) return;
  scope_->bindings.clear();
  pool_.free_.push_back(scope_);
}

Result<Scope*> ScopePool::open(Scope* around) {
  if (free_.empty()) {
    ROOST_TRY_DO(heap_.take(sizeof(Scope)));
    scopes_.push_back(std::make_unique<Scope>());
    free_.push_back(scopes_.back().get());
  }
  Scope* scope = free_.back();
  free_.pop_back();
  scope->around = around;
  return scope;
}

void keep(Scope* scope) {
  for (; scope != nullptr && !scope->is_kept; scope = scope->around) scope->is_kept = true;
}

}  // namespace roost::jinja
