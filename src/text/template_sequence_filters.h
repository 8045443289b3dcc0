// Filters over lists, dicts and whatever else can be walked.
#pragma once

#include "text/template_filters.h"

namespace roost::jinja {

// args: in the order of the parameters that the table of template_filters.cc gives them.
Result<Value> filter_list(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_first(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_last(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_join(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_items(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_dictsort(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_sort(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_unique(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_min(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_max(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_sum(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_reverse(Heap& heap, const Value& input, const Bound& args);

// Those that name a filter, a test or an attribute.
Result<Value> filter_map(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_select(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_reject(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_selectattr(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_rejectattr(Heap& heap, const Value& input, const Arguments& arguments);

}  // namespace roost::jinja
