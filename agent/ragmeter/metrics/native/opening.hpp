// The opening of an answer, which tells whether it refuses.
#pragma once

#include "answer.hpp"
#include "words.hpp"

namespace ragmeter {

class OpeningReader {
  public:
    struct Opening {
        Letters text;  // without markup and markers, in lower case
        Py_ssize_t end;  // in the answer
    };

    // A refusal has one of the cues: looking for them is quicker than the pattern. The opening is in
    // the first `most` characters; a sentence of fewer than `brief` is read with the next one.
    OpeningReader(const AnswerReader& answers, const Letters& refusal, const std::vector<Letters>& cues, Py_ssize_t most,
                  Py_ssize_t brief)
        : answers_(answers), refusal_(refusal, 0), most_(most), brief_(brief) {
        for (const Letters& cue : cues) cues_.add(cue);
    }

    Opening read(const Text& answer) const {
        Letters head = answer.part(0, answer.size < most_ ? answer.size : most_);
        answers_.strip_format(head);
        answers_.strip_markers(head);
        head = lowered(head);
        std::replace(head.begin(), head.end(), U'’', U'\'');
        const size_t size = head.size();
        size_t start = 0;
        while (start < size && Py_UNICODE_ISSPACE(head[start])) start++;
        for (size_t at = start; at < size; at++) {
            const char32_t sign = head[at];
            const bool stops = (sign == '.' || sign == '!' || sign == '?') && at + 1 < size && Py_UNICODE_ISSPACE(head[at + 1]);
            if ((stops || sign == '\n') && (Py_ssize_t)(at + 1 - start) >= brief_)
                return {head.substr(start, at + 1 - start), (Py_ssize_t)at + 1};
        }
        return {head.substr(start), (Py_ssize_t)size};
    }

    bool refuses(const Text& answer) const {
        const Opening opening = read(answer);
        const Text text(opening.text);
        return cues_.stand_in(text) && refusal_.search(text);
    }

  private:
    const AnswerReader& answers_;
    const Pattern refusal_;
    Words cues_;
    const Py_ssize_t most_, brief_;
};

}  // namespace ragmeter
