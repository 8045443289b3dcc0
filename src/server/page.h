// The page at `/`: files of src/server/page/, built into the program.
#pragma once

#include <string_view>
#include <vector>

#include "server/http_server.h"

namespace roost {

struct PageFile {
  std::string_view path, content_type, body;
};

// Every file, the first one is that of `/`. The build makes this table (cmake/embed_page.cmake).
const std::vector<PageFile>& page_files();

// A file of the page with the headers that keep it to this origin; the path is one of the table.
HttpResponse page_response(std::string_view path);

}  // namespace roost
