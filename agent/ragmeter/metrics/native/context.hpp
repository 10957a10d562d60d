// What stands beside a value of a text.
#pragma once

#include <algorithm>

#include "english.hpp"
#include "pattern.hpp"

namespace ragmeter {

// Reads the words next to places of texts.
class Context {
  public:
    static constexpr size_t FEW = 3, MANY = 8;  // words

    explicit Context(const English& english) : english_(english) {}

    // The stems of the content words next to a place, at most so many on either side, each once, sorted.
    std::vector<Letters> beside(const Text& text, Py_ssize_t start, Py_ssize_t end, size_t most = FEW) const {
        std::vector<Letters> before, out;
        words(text, start > REACH ? start - REACH : 0, start, before);
        for (size_t at = before.size() > most ? before.size() - most : 0; at < before.size(); at++)
            out.push_back(before[at]);
        before.clear();
        words(text, end, end + REACH < text.size ? end + REACH : text.size, before);
        for (size_t at = 0; at < before.size() && at < most; at++) out.push_back(before[at]);
        for (Letters& word : out) word = english_.content_stem(lower(word));
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
        if (!out.empty() && out[0].empty()) out.erase(out.begin());
        return out;
    }

    // Whether two places have so many words beside them in common; `there` is sorted.
    static bool share_words(const std::vector<Letters>& beside, const std::vector<Letters>& there, int least = 2) {
        int shared = 0;
        for (const Letters& word : beside) shared += std::binary_search(there.begin(), there.end(), word);
        return shared >= least;
    }

    // Whether a text has a value as it is written.
    static bool stands_in(const Letters& raw, const Text& text) {
        auto digit = [&](Py_ssize_t at) { return at >= 0 && at < text.size && Py_UNICODE_ISDIGIT(text.at(at)); };
        auto parts = [&](Py_ssize_t at) {
            return at >= 0 && at < text.size && (text.at(at) == '.' || text.at(at) == ',');
        };
        auto joins = [&](Py_ssize_t at) { return at >= 0 && at < text.size && is_alnum(text.at(at)); };
        Py_ssize_t size = (Py_ssize_t)raw.size(), at = text.size ? text.find(raw) : -1;
        for (; at >= 0; at = text.find(raw, at + 1)) {
            Py_ssize_t end = at + size;
            if (joins(at - 1) || joins(end)) continue;
            if (Py_UNICODE_ISDIGIT(raw[0]) && parts(at - 1) && digit(at - 2)) continue;
            if (Py_UNICODE_ISDIGIT(raw.back()) && parts(end) && digit(end + 1)) continue;
            return true;
        }
        return false;
    }

  private:
    static constexpr Py_ssize_t REACH = 60;  // characters beside a place that are looked at

    // The words of three letters and more of [at, end).
    static void words(const Text& text, Py_ssize_t at, Py_ssize_t end, std::vector<Letters>& out) {
        while (at < end) {
            Py_ssize_t start = at;
            while (at < end && is_alnum(text.at(at)) && !is_decimal(text.at(at))) at++;
            if (at - start > 2) out.push_back(text.part(start, at));
            at += at == start;
        }
    }

    const English& english_;
};

}  // namespace ragmeter
