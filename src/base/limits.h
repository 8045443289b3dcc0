// Everything from outside has a maximum; more is a refusal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roost::limits {

// JSON of requests (docs/SERVER.md, Reading a body).
inline constexpr size_t kJsonDepthMax = 128;
inline constexpr size_t kJsonValuesMax =
    size_t{1} << 22;  // bounds what a small text can make: 80 bytes a value
inline constexpr size_t kBodyBytesMax = size_t{64} << 20;
inline constexpr size_t kErrorValueBytesMax = 64;  // user bytes quoted in an error text

// HTTP.
inline constexpr size_t kHeaderBytesMax = size_t{64} << 10;
inline constexpr size_t kTargetBytesMax = size_t{8} << 10;
inline constexpr size_t kConnectionsMax = 1024;
inline constexpr size_t kQueueMax = 64;
inline constexpr size_t kStreamBufferBytesMax =
    size_t{4} << 20;  // unsent bytes of one reply; more means a reader that has stalled
inline constexpr size_t kMergeBytes =
    size_t{64} << 10;  // unsent bytes of one reply beyond which its deltas are merged
inline constexpr int kPostedEventsMax =
    4096;  // engine events of one reply that wait for a network thread

inline constexpr size_t kKeyFileBytesMax = size_t{1} << 20;

// Requests.
inline constexpr size_t kMessagesMax = 8192;
inline constexpr size_t kPartsMax = 1024;
inline constexpr size_t kToolsMax = 1024;
inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 512;
inline constexpr size_t kStopTokensMax = 64;
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr int64_t kTopLogprobsMax = 20;
inline constexpr int64_t kPromptLogprobsMax = int64_t{1} << 20;  // told of the prompts of one body
inline constexpr int64_t kChoicesMax = 16;
inline constexpr size_t kPromptsMax = 64;  // of one completion body, times its choices
inline constexpr size_t kStoredRepliesMax = 1024;
inline constexpr size_t kStoredReplyBytesMax = size_t{256} << 20;  // of all stored replies
inline constexpr size_t kLabelBytesMax = 128;
inline constexpr int kCallsMax = 128;  // in one reply

// Structured output (docs/SERVER.md, structured output).
inline constexpr size_t kGrammarBytesMax = size_t{1} << 20;  // schema, grammar or regex text
inline constexpr size_t kChoiceStringsMax = 1024;
inline constexpr size_t kChoiceBytesMax = size_t{64} << 10;  // of all choices together
inline constexpr int64_t kGrammarStatesMax = 1'000'000;
inline constexpr int64_t kGrammarTableMax = int64_t{12} << 20;  // entries of 4 bytes
inline constexpr int64_t kGrammarStepsMax = int64_t{60} << 20;  // of compilation: under 2 s
inline constexpr int kSchemaDepthMax = 64;                      // objects and arrays of a schema
inline constexpr int kValueDepthMax = 64;                       // of generated JSON
inline constexpr size_t kGrammarRulesMax = 1024;                // of a grammar in EBNF
inline constexpr int kRuleDepthMax = 256;                       // of a grammar's rules in a reply
inline constexpr int kRegexDepthMax = 64;                       // groups inside each other
inline constexpr int kRegexRepeatMax = 10'000;
inline constexpr size_t kGrammarThreadsMax = 1024;  // readings of one reply followed at once
inline constexpr size_t kGrammarRollbackMax = 64;   // tokens that a draft may take back
inline constexpr size_t kGrammarCacheBytes = size_t{256} << 20;

// Checkpoint files.
inline constexpr size_t kSafetensorsHeaderBytesMax = size_t{100} << 20;
inline constexpr size_t kTensorsMax = 1'000'000;
inline constexpr size_t kConfigBytesMax = size_t{64} << 20;
inline constexpr size_t kTokenizerBytesMax = size_t{256} << 20;
inline constexpr int64_t kVocabularyMax = int64_t{1} << 22;

// Chat templates are code from a stranger.
inline constexpr size_t kTemplateBytesMax = size_t{1} << 20;
inline constexpr size_t kTemplateStepsMax = 50'000'000;
inline constexpr size_t kTemplateOutputBytesMax = size_t{256} << 20;
inline constexpr int kTemplateDepthMax = 64;

// Model geometry: larger than any member of the family, small enough that products of sizes fit 64
// bits.
inline constexpr int64_t kDimensionMax = int64_t{1} << 20;
inline constexpr int64_t kLayersMax = 1024;
inline constexpr int64_t kContextMax = int64_t{1} << 20;

}  // namespace roost::limits
