// Calendar days are checked by the expression itself; leap seconds are not offered.
#include "grammar/string_formats.h"

namespace roost {

namespace {

#define ROOST_DATE                                                                           \
  "(?:(?:000[1-9]|00[1-9]\\d|0[1-9]\\d{2}|[1-9]\\d{3})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]" \
  "\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d{2}(?:0[" \
  "48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define ROOST_TIME                                                                    \
  "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]" \
  "):[0-5]\\d))"
#define ROOST_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)"
#define ROOST_IPV4 "(?:" ROOST_BYTE "(?:\\." ROOST_BYTE "){3})"
#define ROOST_H16 "[0-9a-fA-F]{1,4}"
#define ROOST_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ROOST_UNRESERVED "A-Za-z0-9._~!$&'()*+,;=-"
#define ROOST_ESCAPED "%[0-9A-Fa-f]{2}"
#define ROOST_PCHAR "(?:[" ROOST_UNRESERVED ":@]|" ROOST_ESCAPED ")"
#define ROOST_AUTHORITY                                                                          \
  "(?:(?:[" ROOST_UNRESERVED ":]|" ROOST_ESCAPED ")*@)?(?:[" ROOST_UNRESERVED "]|" ROOST_ESCAPED \
  ")*(?::\\d*)?"
#define ROOST_TAIL "(?:\\?(?:" ROOST_PCHAR "|[/?])*)?(?:#(?:" ROOST_PCHAR "|[/?])*)?"

struct Format {
  std::string_view name, pattern;
};

constexpr Format kFormats[] = {
    {"date", "^" ROOST_DATE "$"},
    {"time", "^" ROOST_TIME "$"},
    {"date-time", "^" ROOST_DATE "T" ROOST_TIME "$"},
    {"duration",
     "^P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)"
     "(?:T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))?|"
     "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))$"},
    {"email",
     "^[A-Za-z0-9!#$%&'*+/=?\\^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?\\^_`{|}~-]+)*"
     "@" ROOST_LABEL "(?:\\." ROOST_LABEL ")+$"},
    // At most 253 bytes: one label of 61 and three of 63.
    {"hostname", "^[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?(?:\\." ROOST_LABEL "){0,3}$"},
    {"ipv4", "^" ROOST_IPV4 "$"},
    {"ipv6",
     "^(?:(?:" ROOST_H16 ":){7}" ROOST_H16 "|(?:" ROOST_H16 ":){1,7}:|(?:" ROOST_H16
     ":){1,6}:" ROOST_H16 "|(?:" ROOST_H16 ":){1,5}(?::" ROOST_H16 "){1,2}|(?:" ROOST_H16
     ":){1,4}(?::" ROOST_H16 "){1,3}|(?:" ROOST_H16 ":){1,3}(?::" ROOST_H16 "){1,4}|(?:" ROOST_H16
     ":){1,2}(?::" ROOST_H16 "){1,5}|" ROOST_H16 ":(?::" ROOST_H16 "){1,6}|:(?:(?::" ROOST_H16
     "){1,7}|:)|(?:" ROOST_H16 ":){6}" ROOST_IPV4 "|::(?:[fF]{4}:)?" ROOST_IPV4 ")$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"uri",
     "^[A-Za-z][A-Za-z0-9+.-]*:(?://" ROOST_AUTHORITY "(?:/" ROOST_PCHAR "*)*|/(?:" ROOST_PCHAR
     "+(?:/" ROOST_PCHAR "*)*)?|" ROOST_PCHAR "+(?:/" ROOST_PCHAR "*)*)" ROOST_TAIL "$"},
    {"uri-reference", "^(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://" ROOST_AUTHORITY "(?:/" ROOST_PCHAR
                      "*)*|/(?:" ROOST_PCHAR "+(?:/" ROOST_PCHAR "*)*)?|(?:[" ROOST_UNRESERVED
                      "@]|" ROOST_ESCAPED ")+(?:/" ROOST_PCHAR "*)*)?" ROOST_TAIL "$"},
    {"json-pointer", "^(?:/(?:[^~/]|~[01])*)*$"},
};

}  // namespace

std::optional<std::string_view> pattern_of_format(std::string_view format) {
  for (const Format& known : kFormats)
    if (known.name == format) return known.pattern;
  return std::nullopt;
}

}  // namespace roost
