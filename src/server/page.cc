// Static bytes and the policy that goes with them.
#include "server/page.h"

#include <algorithm>

#include "base/check.h"

namespace roost {

HttpResponse page_response(std::string_view path) {
  const std::vector<PageFile>& files = page_files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const PageFile& one) { return one.path == path; });
  ROOST_CHECK(file != files.end());
  HttpResponse out;
  out.content_type = file->content_type;
  out.body = file->body;
  out.headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
       "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-cache"},
  };
  return out;
}

}  // namespace roost
