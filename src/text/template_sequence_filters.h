// Filters over lists, dicts and whatever else can be walked.
#pragma once

#include "text/template_filters.h"

namespace roost::jinja {

Result<Value> filter_list(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_first(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_last(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_join(Heap& heap, const Value& input, const Bound& args);  // d, attribute
Result<Value> filter_items(Heap& heap, const Value& input, const Bound& args);
Result<Value> filter_dictsort(Heap& heap, const Value& input,
                              const Bound& args);  // case_sensitive, by, reverse
Result<Value> filter_sort(Heap& heap, const Value& input,
                          const Bound& args);  // reverse, case_sensitive, attribute
Result<Value> filter_unique(Heap& heap, const Value& input,
                            const Bound& args);  // case_sensitive, attribute
Result<Value> filter_min(Heap& heap, const Value& input,
                         const Bound& args);  // case_sensitive, attribute
Result<Value> filter_max(Heap& heap, const Value& input,
                         const Bound& args);  // case_sensitive, attribute
Result<Value> filter_sum(Heap& heap, const Value& input, const Bound& args);  // attribute, start
Result<Value> filter_reverse(Heap& heap, const Value& input, const Bound& args);

Result<Value> filter_map(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_select(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_reject(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_selectattr(Heap& heap, const Value& input, const Arguments& arguments);
Result<Value> filter_rejectattr(Heap& heap, const Value& input, const Arguments& arguments);

}  // namespace roost::jinja
