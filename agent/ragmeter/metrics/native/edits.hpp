// Where the characters of a changed text stand in the text that it was made from.
#pragma once

#include <algorithm>

#include "text.hpp"

namespace ragmeter {

// Characters [start, end) stand in place of [low, high) of the text before.
struct Edit {
    Py_ssize_t start, end, low, high;
};

// The changes of a text in their order.
class Edits {
  public:
    void add(Py_ssize_t start, Py_ssize_t end, Py_ssize_t low, Py_ssize_t high) {
        edits_.push_back({start, end, low, high});
    }

    // Where [start, end) stands in the text before.
    std::pair<Py_ssize_t, Py_ssize_t> place(Py_ssize_t start, Py_ssize_t end) const {
        return {place_of(start, false), place_of(end, true)};
    }

    // Returns a text with [start, end) of each change replaced by its text, and adds the edits.
    template <class Change>
    Letters replace(const Text& text, const std::vector<Change>& changes) {
        Letters out;
        out.reserve(text.size);
        Py_ssize_t at = 0;
        for (const Change& change : changes) {
            for (; at < change.start; at++) out.push_back(text.at(at));
            Py_ssize_t start = (Py_ssize_t)out.size();
            out += change.text;
            add(start, (Py_ssize_t)out.size(), change.start, change.end);
            at = change.end;
        }
        for (; at < text.size; at++) out.push_back(text.at(at));
        return out;
    }

  private:
    Py_ssize_t place_of(Py_ssize_t at, bool last) const {
        auto behind = std::upper_bound(edits_.begin(), edits_.end(), at,
                                       [](Py_ssize_t place, const Edit& edit) { return place < edit.start; });
        if (behind == edits_.begin()) return at;
        const Edit& edit = *(behind - 1);
        if (last && at == edit.start) return edit.low;  // what ends here does not hold the edit
        if (at < edit.end) return last ? edit.high : edit.low;
        return edit.high + at - edit.end;
    }

    std::vector<Edit> edits_;
};

}  // namespace ragmeter
