# Writes a C++ file that holds the files of the page: cmake -DOUT=… -DDIR=… -P embed_page.cmake
set(text "// Made by cmake/embed_page.cmake.\n#include \"server/page.h\"\n\nnamespace roost {\n\n")
string(APPEND text "const std::vector<PageFile>& page_files() {\n")
string(APPEND text "  static const std::vector<PageFile> kFiles = {\n")
foreach(row "index.html|/|text/html" "app.js|/app.js|text/javascript" "app.css|/app.css|text/css"
        "api.js|/app/api.js|text/javascript" "live.js|/app/live.js|text/javascript"
        "settings.js|/app/settings.js|text/javascript" "store.js|/app/store.js|text/javascript"
        "text.js|/app/text.js|text/javascript")
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 file)
  list(GET row 1 path)
  list(GET row 2 type)
  # Through hexadecimal, so that no character of the file means anything to CMake or C++.
  file(READ ${DIR}/${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(LENGTH "${bytes}" length)
  string(APPEND text "      {\"${path}\", \"${type}; charset=utf-8\",\n       std::string_view(\n")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${bytes}" ${at} 320 part)
    string(APPEND text "           \"${part}\"\n")
    math(EXPR at "${at} + 320")
  endwhile()
  math(EXPR size "${length} / 4")
  string(APPEND text "           , ${size})},\n")
endforeach()
string(APPEND text "  };\n  return kFiles;\n}\n\n}  // namespace roost\n")
file(WRITE ${OUT} "${text}")
