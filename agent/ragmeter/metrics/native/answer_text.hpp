// Reads an answer as its passages write the same values, and without its courtesies.
#pragma once

#include "answer.hpp"
#include "courtesies.hpp"
#include "edits.hpp"
#include "notation.hpp"

namespace ragmeter {

typedef std::pair<Py_ssize_t, Py_ssize_t> Place;

struct AnswerText {
    Answer answer;
    std::vector<Place> places;  // of the sentences in the answer as it came
    std::vector<Edits> changes;  // that made the text of the answer as it came, the last one first
    size_t replaced = 0;  // values of sentences in place of another one that passages have

    // Where [start, end) of the bare answer stands in the answer as it came.
    Place place(Py_ssize_t start, Py_ssize_t end) const {
        Place out(start, end);
        for (const Edits& edits : changes) out = edits.place(out.first, out.second);
        return out;
    }
};

class AnswerTextReader {
  public:
    AnswerTextReader(const AnswerReader& answers, const Notation& notation) : answers_(answers), notation_(notation) {}

    // Reads a plain text, of which `edits` tell what made it plain.
    void read(const Text& plain, const Edits& edits, const std::vector<Text>& passages, const Text& query,
              const Courtesies& courtesies, AnswerText& out) const {
        std::vector<Notation::Change> changes;
        std::vector<Py_ssize_t> replaced;
        Edits adopted;
        if (!passages.empty()) replaced = notation_.adopt(plain, passages, query, changes);
        Letters text = changes.empty() ? plain.part(0, plain.size) : adopted.replace(plain, changes);
        out.changes = {adopted, edits};
        read_proper(text, courtesies, out.answer);
        std::vector<Place> said;
        for (const Sentence& sentence : out.answer.sentences) {
            out.places.push_back(out.place(sentence.start, sentence.end));
            said.push_back(adopted.place(sentence.words, sentence.end));
        }
        // "a summary in 100 words:" before the answer proper replaces nothing
        for (Py_ssize_t at : replaced)
            out.replaced += std::any_of(said.begin(), said.end(),
                                        [=](Place one) { return one.first <= at && at < one.second; });
    }

  private:
    // Reads a text, once more without the courtesies before and behind the answer if it has any.
    void read_proper(const Letters& text, const Courtesies& courtesies, Answer& out) const {
        answers_.read(text, out);
        if (out.sentences.empty()) return;
        Py_ssize_t size = (Py_ssize_t)text.size(), start = out.sentences[0].words, end = size;
        Py_ssize_t opening = courtesies.find_opening(out.bare, start);
        size_t closings = courtesies.count_closings(out.sentences), count = out.sentences.size();
        if (closings && closings < count) end = out.sentences[count - closings].start;
        Py_ssize_t last = (Py_ssize_t)out.bare.size();
        while (last && Py_UNICODE_ISSPACE(out.bare[last - 1])) last--;
        if (opening >= last) opening = start;
        if (opening == start && end == size) return;
        Letters rest(text, 0, start);
        rest.append(opening - start, U' ');
        if (opening < end) rest.append(text, opening, end - opening);
        Answer proper;
        answers_.read(std::move(rest), proper);
        if (!proper.sentences.empty()) out = std::move(proper);
    }

    const AnswerReader& answers_;
    const Notation& notation_;
};

}  // namespace ragmeter
