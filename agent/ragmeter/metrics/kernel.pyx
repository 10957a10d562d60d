# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=False
# distutils: language = c++
"""The text kernel of the built-in scorers: the lexical comparison of a trace over integer ids.

Sums are made in the order of the text. What takes long is done without the interpreter's lock. What
takes a few microseconds keeps it: each release wakes a thread that waits for the lock, and finds it
taken again.
"""

from cpython.unicode cimport PyUnicode_DATA, PyUnicode_KIND
from libc.math cimport exp, log, log1p, sqrt
from libc.stdint cimport uint64_t
from libcpp.algorithm cimport binary_search, sort
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

import os
import threading

from cpython.unicode cimport PyUnicode_FromKindAndData
from libcpp cimport bool as truth


cdef extern from "native/text.hpp" namespace "ragmeter" nogil:
    cdef cppclass Letters:
        Letters()
        const char* data()
        size_t size()
        Py_UCS4 operator[](size_t)
        void push_back(Py_UCS4)
    cdef cppclass Text:
        Text()
        Text(const Letters&)
        Text(const void*, int, Py_ssize_t)
        Letters part(Py_ssize_t, Py_ssize_t) except +
    string as_bytes(const Letters&) except +


cdef extern from "native/english.hpp" namespace "ragmeter" nogil:
    cdef cppclass English:
        void add_stop_word(const Letters&) except +
        void add_suffix(const Letters&, int) except +


cdef extern from "native/pattern.hpp" namespace "ragmeter" nogil:
    cdef cppclass Match:
        Py_ssize_t* places
    cdef cppclass CompiledPattern "ragmeter::Pattern":
        CompiledPattern(const Letters&, int) except +
        int groups()
        int group(const char*) except +
        truth search(const Text&, Py_ssize_t, Match&, Py_ssize_t) except +
        truth match(const Text&, Py_ssize_t, Match&, Py_ssize_t) except +


cdef extern from "native/plain.hpp" namespace "ragmeter" nogil:
    cdef cppclass Span "std::pair<Py_ssize_t, Py_ssize_t>":
        Py_ssize_t first, second
    cdef cppclass PlainSigns:
        PlainSigns() except +
        void add(Py_UCS4)
        int judge(const Text&)
        void find(const Text&, vector[Span]&) except +


cdef extern from "native/words.hpp" namespace "ragmeter" nogil:
    cdef cppclass NativeWords "ragmeter::Words":
        void add(const Letters&) except +
        truth stand_in(const Text&) except +
        vector[size_t] find(const Text&) except +


cdef extern from "native/marker_signs.hpp" namespace "ragmeter::MarkerSigns" nogil:
    cdef enum:
        CODE, LISTED, DEFINITIONS, TURNS, OAICITE, LATEX, TAGS, LINKS, WIDE, QUOTED_IDS, SQUARE, ROUND
        BRACES, CARETS, SIGNS, RAISED, KEYCAPS, PICTURED_FILES, SPOKEN, ADDRESSES, SOURCE_LINES
        REPEATED, WORKS, NOTES


cdef extern from "native/marker_signs.hpp" namespace "ragmeter" nogil:
    cdef cppclass NativeMarkerSigns "ragmeter::MarkerSigns":
        NativeMarkerSigns(
            const vector[Letters]&, const vector[Letters]&, const Letters&, const vector[Letters]&
        ) except +
        unsigned read(const Text&) except +


cdef extern from "native/notation.hpp" namespace "ragmeter" nogil:
    cdef cppclass Key:
        vector[Letters] parts
    cdef cppclass Quantity:
        Py_ssize_t start, end
        vector[Key] keys
    cdef cppclass Change "ragmeter::Notation::Change":
        Py_ssize_t start, end
        Letters text
    cdef cppclass Notation:
        Notation(const English&) except +
        void find(const Text&, vector[Quantity]&) except +
        vector[Py_ssize_t] adopt(const Text&, const vector[Text]&, const Text&, vector[Change]&) except +


cdef extern from "native/numbers.hpp" namespace "ragmeter" nogil:
    cdef cppclass Number:
        Py_ssize_t start, end
        Letters form, raw
    cdef cppclass Numbers:
        Numbers() except +
        void find(const Text&, size_t, vector[Number]&) except +


cdef extern from "native/answer.hpp" namespace "ragmeter" nogil:
    cdef cppclass Sentence:
        Py_ssize_t start, end, words
        Letters text
    cdef cppclass Answer:
        Letters bare
        vector[Sentence] sentences
        vector[Number] numbers
        vector[Letters] names
    const size_t MOST_SENTENCES
    cdef cppclass AnswerReader:
        AnswerReader(const English&, const Numbers&) except +
        void strip_format(Letters&) except +
        void strip_markers(Letters&) except +
        Py_ssize_t skip_bullet(const Text&, Py_ssize_t, Py_ssize_t) except +
        void find_sentences(const Letters&, vector[Span]&) except +


cdef extern from "native/opening.hpp" namespace "ragmeter" nogil:
    cdef cppclass Opening "ragmeter::OpeningReader::Opening":
        Letters text
        Py_ssize_t end
    cdef cppclass OpeningReader:
        OpeningReader(
            const AnswerReader&, const Letters&, const vector[Letters]&, Py_ssize_t, Py_ssize_t
        ) except +
        Opening read(const Text&) except +
        truth refuses(const Text&) except +


cdef extern from "native/edits.hpp" namespace "ragmeter" nogil:
    cdef cppclass Edits:
        void add(Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) except +
        Letters replace(const Text&, const vector[Change]&) except +


cdef extern from "native/courtesies.hpp" namespace "ragmeter" nogil:
    cdef cppclass CourtesyRules:
        Letters greeting, opening, lead, closing, footer, farewell, further
    cdef cppclass Courtesies:
        Courtesies(const CourtesyRules&, const vector[Letters]&) except +


cdef extern from "native/answer_text.hpp" namespace "ragmeter" nogil:
    cdef cppclass AnswerText:
        Answer answer
        vector[Span] places
        size_t replaced
        Span place(Py_ssize_t, Py_ssize_t)
    cdef cppclass AnswerTextReader:
        AnswerTextReader(const AnswerReader&, const Notation&) except +
        void read(
            const Text&, const Edits&, const vector[Text]&, const Text&, const Courtesies&, AnswerText&
        ) except +


cdef extern from "native/language.hpp" namespace "ragmeter" nogil:
    cdef enum Script:
        NO_LETTERS, LATIN, OTHER_SCRIPT
    Script find_script "ragmeter::detect_script"(const Text&)
    cdef cppclass Languages:
        int add_language()
        void add_word(int, const Letters&) except +
        void add_letter(int, Py_UCS4) except +
        int identify(const Text&) except +
    cdef int UNKNOWN_LANGUAGE "ragmeter::Languages::UNKNOWN"


cdef extern from "native/lexicon.hpp" namespace "ragmeter" nogil:
    cdef enum:  # flags of stems; `lexicon.hpp` says what they mean
        DIGIT_FIRST, COUNT, TIME, META, SAY, TEXT, NEGATION, DIGIT, DECIMAL
    cdef enum:  # flags of forms
        HEDGE, NEGATES, DENIES
    cdef enum:
        SCOPE
    truth is_unspaced(Py_UCS4)
    cdef cppclass NativeVocabulary "ragmeter::Vocabulary":
        const English* english
        double rarest
        size_t prefix
        void set_rarity(const string&, double) except +
        void set_stem_flags(const string&, int) except +
        void set_form_flags(const string&, int) except +
        void add_numeral(const string&, const string&) except +
    cdef cppclass Form:
        int stem, flags
        long seen
    cdef cppclass Stem:
        double rarity
        long wanted, seen, marked
        int local, flags, prefix, numeral
    cdef cppclass PassageWords:
        long generation
        vector[int] stems, forms, heads, near
        vector[size_t] near_ends
    cdef cppclass NativeLexicon "ragmeter::Lexicon":
        vector[Form] form_data
        vector[Stem] stem_data
        vector[long] prefix_seen
        long mark, epoch, generation
        NativeLexicon(const NativeVocabulary&, size_t, uint64_t, uint64_t) except +
        void make_room() except +
        int stem(const string&) except +
        int find_stem(const string&) except +
        truth before(int, int)
        void read(const Text&, Py_ssize_t, Py_ssize_t, vector[int]&) except +
        void read_passage(const Text&, truth, PassageWords&) except +


cdef enum:
    QUICK = 4_000  # characters, which are searched in some microseconds


cdef English english
cdef Notation* notation = new Notation(english)
cdef Numbers* all_numbers = new Numbers()
cdef AnswerReader* answers = new AnswerReader(english, all_numbers[0])
cdef AnswerTextReader* answer_texts = new AnswerTextReader(answers[0], notation[0])
cdef Courtesies* courtesies = NULL


cdef Text _text(str text) except *:
    """Return the buffer of a string, which lives as long as the string does."""
    return Text(PyUnicode_DATA(text), PyUnicode_KIND(text), len(text))


cdef Letters _letters(str text) except *:
    return _text(text).part(0, len(text))


cdef str _string(const Letters& text):
    return PyUnicode_FromKindAndData(4, (<Letters&>text).data(), (<Letters&>text).size())


cdef vector[Text] _texts(several) except *:
    """Return the buffers of strings, which live as long as the strings do."""
    cdef vector[Text] out
    for text in several:
        out.push_back(_text(<str?>text))
    return out


def read_english(stop_words, suffixes):
    """Take the stop words, and the suffixes with the letters that a stem keeps at least."""
    for word in stop_words:
        english.add_stop_word(_letters(word))
    for suffix, keep in suffixes:
        english.add_suffix(_letters(suffix), keep)


cdef class Found:
    """A match of a `Pattern`, with the methods that one of `re` has."""

    cdef str text
    cdef Pattern owner
    cdef vector[Py_ssize_t] places  # where each group starts and ends

    def span(self, int group=0):
        """Return where a group stands, (-1, -1) if it matched nothing."""
        if not self._has(self._check(group)):
            return -1, -1
        return self.places[2 * group], self.places[2 * group + 1]

    def start(self, int group=0):
        """Return where a group begins, -1 if it matched nothing."""
        return self.places[2 * group] if self._has(self._check(group)) else -1

    def end(self, int group=0):
        """Return where a group ends, -1 if it matched nothing."""
        return self.places[2 * group + 1] if self._has(self._check(group)) else -1

    def group(self):
        """Return all that was matched."""
        return self.text[self.places[0] : self.places[1]]

    def groups(self):
        """Return what all groups have matched."""
        return tuple([self[group] for group in range(1, self.owner.pattern.groups() + 1)])

    def __getitem__(self, group):
        cdef int number
        if isinstance(group, str):
            number = self.owner.pattern.group(group.encode())
        else:
            number = self._check(group)
        if not self._has(number):
            return None
        return self.text[self.places[2 * number] : self.places[2 * number + 1]]

    cdef bint _has(self, int group):
        return self.places[2 * group] >= 0 and self.places[2 * group + 1] >= 0

    cdef int _check(self, int group) except -1:
        if not 0 <= group <= self.owner.pattern.groups():
            raise IndexError("no such group")
        return group


cdef class Pattern:
    """A regular expression of the kernel, with the meaning that `re` gives it.

    Args:
        source: The expression.
        flags: `IGNORE_CASE`, `MULTI_LINE` and `DOT_ALL`, added up.
    """

    cdef CompiledPattern* pattern
    cdef CompiledPattern* whole  # the same to the end of the text; made on first use
    cdef str source
    cdef int flags

    def __cinit__(self, str source not None, int flags=0):
        self.source, self.flags = source, flags
        self.pattern = new CompiledPattern(_letters(source), flags)

    def __dealloc__(self):
        del self.pattern
        del self.whole

    cdef Found _find(self, str text, Py_ssize_t at, Py_ssize_t end, bint here):
        cdef Text data = _text(text)
        cdef Match match
        cdef bint has
        at = at if at > 0 else 0
        if here or len(text) - at <= QUICK:
            has = self._run(data, at, match, end, here)
        else:
            with nogil:
                has = self._run(data, at, match, end, here)
        return self._make(text, match) if has else None

    cdef int _run(
        self, const Text& text, Py_ssize_t at, Match& match, Py_ssize_t end, bint here
    ) except -1 nogil:
        if here:
            return self.pattern.match(text, at, match, end)
        return self.pattern.search(text, at, match, end)

    cdef Found _make(self, str text, const Match& match):
        cdef Found found = Found.__new__(Found)
        found.text, found.owner = text, self
        found.places.assign(match.places, match.places + 2 * (self.pattern.groups() + 1))
        return found

    def search(self, str text not None, Py_ssize_t start=0, Py_ssize_t end=-1):
        """Return the first match at or behind `start`, or None."""
        return self._find(text, start, end, False)

    def match(self, str text not None, Py_ssize_t start=0, Py_ssize_t end=-1):
        """Return the match that begins at `start`, or None."""
        return self._find(text, start, end, True)

    def finditer(self, str text not None, Py_ssize_t start=0):
        """Return all matches in order."""
        cdef Found found
        out = []
        while start <= len(text):
            found = self._find(text, start, -1, False)
            if found is None:
                break
            out.append(found)
            start = found.places[1] + (found.places[1] == found.places[0])
        return out

    def fullmatch(self, str text not None, Py_ssize_t start=0, Py_ssize_t end=-1):
        """Return the match of [start, end), or None."""
        if self.whole is NULL:
            self.whole = new CompiledPattern(_letters(f"(?:{self.source})\\Z"), self.flags)
        cdef Match match
        if not self.whole.match(_text(text), start, match, end):
            return None
        return self._make(text, match)

    def findall(self, str text not None):
        """Return the groups of all matches: texts, or tuples of several groups."""
        cdef int groups = self.pattern.groups()
        if groups == 0:
            return [found.group() for found in self.finditer(text)]
        if groups == 1:
            return [found[1] or "" for found in self.finditer(text)]
        return [tuple([one or "" for one in found.groups()]) for found in self.finditer(text)]

    def split(self, str text not None):
        """Return what stands between the matches, whose groups are left out."""
        cdef Py_ssize_t at = 0
        pieces = []
        for found in self.finditer(text):
            start, end = found.span()
            pieces.append(text[at:start])
            at = end
        pieces.append(text[at:])
        return pieces

    def sub(self, replace not None, str text not None, Py_ssize_t count=0):
        """Replace matches by a text, or by what `replace` returns for each; `count` at most."""
        cdef Found found
        cdef Py_ssize_t at = 0
        cdef bint fixed = isinstance(replace, str)
        pieces = []
        for found in self.finditer(text):
            pieces.append(text[at : found.places[0]])
            pieces.append(replace if fixed else replace(found))
            at = found.places[1]
            count -= 1
            if count == 0:
                break
        if not pieces:
            return text
        pieces.append(text[at:])
        return "".join(pieces)


IGNORE_CASE, MULTI_LINE, DOT_ALL = 1, 2, 4


cdef vector[Letters] _long_words(words) except *:
    """Return words of two characters at least.

    Raises:
        ValueError: One is shorter.
    """
    cdef vector[Letters] out
    for word in words:
        if len(word) < 2:
            raise ValueError("a word has two characters at least")
        out.push_back(_letters(word))
    return out


cdef class Words:
    """Words that are looked for in a text all at once, also within other words.

    Args:
        words: Texts of two characters at least.
    """

    cdef NativeWords words

    def __cinit__(self, words):
        cdef vector[Letters] several = _long_words(words)
        cdef size_t at
        for at in range(several.size()):
            self.words.add(several[at])

    def stand_in(self, str text not None):
        """Return whether a text has one of the words."""
        cdef bint has = self.words.stand_in(_text(text))
        return has

    def find(self, str text not None):
        """Return the indices of the words that a text has, in order."""
        return self.words.find(_text(text))


# The forms of citation markers by name, each a bit of what `MarkerSigns.read` returns.
MARKER_FORMS = {
    "code": CODE,
    "listed": LISTED,
    "definitions": DEFINITIONS,
    "turns": TURNS,
    "oaicite": OAICITE,
    "latex": LATEX,
    "tags": TAGS,
    "links": LINKS,
    "wide": WIDE,
    "quoted_ids": QUOTED_IDS,
    "square": SQUARE,
    "round": ROUND,
    "braces": BRACES,
    "carets": CARETS,
    "signs": SIGNS,
    "raised": RAISED,
    "keycaps": KEYCAPS,
    "pictured_files": PICTURED_FILES,
    "spoken": SPOKEN,
    "addresses": ADDRESSES,
    "source_lines": SOURCE_LINES,
    "repeated": REPEATED,
    "works": WORKS,
    "notes": NOTES,
}


cdef class MarkerSigns:
    """Tells which forms of citation markers a text may hold.

    Args:
        named: Words of which a number follows one: "ource" of "source 1".
        headed: Words above sources, behind which `ends` matches.
        ends: The pattern of what follows them.
        foreign: Such words, whatever follows.
    """

    cdef NativeMarkerSigns* signs

    def __cinit__(self, named, headed, str ends not None, foreign):
        self.signs = new NativeMarkerSigns(
            _long_words(named), _long_words(headed), _letters(ends), _long_words(foreign)
        )

    def __dealloc__(self):
        del self.signs

    def read(self, str text not None):
        """Return the forms of `MARKER_FORMS` that a text may hold, added up; 0 without any."""
        return self.signs.read(_text(text))


cdef PlainSigns plain_signs


def read_plain_signs(str signs not None):
    """Take the characters that stay as they are in a plain text, beside any other."""
    cdef Py_UCS4 sign
    for sign in signs:
        plain_signs.add(sign)


def judge_plain(str text not None):
    """Return 1 for a plain text, 0 for another, -1 if characters that are not known decide it."""
    return plain_signs.judge(_text(text))


def find_odd(str text not None):
    """Return where a text may have to be written in other characters."""
    cdef vector[Span] found
    cdef Text data = _text(text)
    cdef size_t at
    with nogil:
        plain_signs.find(data, found)
    out = []
    for at in range(found.size()):
        out.append((found[at].first, found[at].second))
    return out


def find_quantities(str text not None):
    """Return the numbers, dates and times of a text: start, end, and values as tuples."""
    cdef vector[Quantity] found
    cdef Text data = _text(text)
    with nogil:
        notation.find(data, found)
    out = []
    cdef size_t at, key, part
    for at in range(found.size()):
        keys = []
        for key in range(found[at].keys.size()):
            parts = []
            for part in range(found[at].keys[key].parts.size()):
                parts.append(_string(found[at].keys[key].parts[part]))
            keys.append(tuple(parts))
        out.append((found[at].start, found[at].end, keys))
    return out


def adopt_notation(str text not None, passages, str query not None=""):
    """Return a text that writes its quantities as passages, or else the query, write the same values."""
    cdef vector[Text] pages = _texts(passages)
    cdef vector[Change] changes
    cdef Edits edits
    cdef Text data = _text(text), asked = _text(query)
    cdef Letters out
    if pages.empty():
        return text
    with nogil:
        notation.adopt(data, pages, asked, changes)
        if not changes.empty():
            out = edits.replace(data, changes)
    return text if changes.empty() else _string(out)


def find_numbers(str text not None):
    """Return the numbers of a text in lower case: start, end, and the form that all ways to write
    one share.

    "1,000.0" gives "1000". A time of day is "t" and its minutes modulo twelve hours: "5:30 pm" and
    "17:30" are the same.
    """
    cdef vector[Number] found
    cdef Text data = _text(text)
    cdef size_t at
    with nogil:
        all_numbers.find(data, <size_t>-1, found)
    out = []
    for at in range(found.size()):
        out.append((found[at].start, found[at].end, _string(found[at].form)))
    return out


def strip_format(str text not None):
    """Replace markup by spaces, so that an answer reads the same in every format.

    The answer is Markdown, in prose, lists or tables, some with HTML. Citation markers stay: they
    tell where a sentence ends. All characters keep their places.
    """
    cdef Letters letters = _letters(text)
    if len(text) <= QUICK:
        answers.strip_format(letters)
    else:
        with nogil:
            answers.strip_format(letters)
    return _string(letters)


def strip_markers(str text not None):
    """Replace citation markers, and all else in square brackets, by spaces."""
    cdef Letters letters
    if "[" not in text and "\u3010" not in text:
        return text
    letters = _letters(text)
    with nogil:
        answers.strip_markers(letters)
    return _string(letters)


cdef class Openings:
    """Reads the openings of answers: the first sentence, two if it is short.

    Args:
        refusal: The pattern of one that refuses.
        cues: Words of which such a one has one.
        most: How many characters may hold the opening.
        brief: A sentence of fewer characters is read with the next one.
    """

    cdef OpeningReader* reader

    def __cinit__(self, str refusal not None, cues, *, Py_ssize_t most, Py_ssize_t brief):
        self.reader = new OpeningReader(
            answers[0], _letters(refusal), _long_words(cues), most, brief
        )

    def __dealloc__(self):
        del self.reader

    def read(self, str answer not None):
        """Return the opening in lower case, and its end in the answer."""
        cdef Opening opening = self.reader.read(_text(answer))
        return _string(opening.text), opening.end

    def refuse(self, str answer not None):
        """Return whether an answer refuses in its opening."""
        cdef bint refuses = self.reader.refuses(_text(answer))
        return refuses


def skip_bullet(str text not None, Py_ssize_t start, Py_ssize_t end):
    """Return where a list item in [start, end) goes on behind its bullets."""
    if not 0 <= start <= end <= len(text):
        raise IndexError("not a part of the text")
    return answers.skip_bullet(_text(text), start, end)


MAX_SENTENCES = MOST_SENTENCES  # of one text


def find_sentence_spans(str text not None):
    """Return sentences and list items as [start, end) without surrounding space, empty ones not."""
    cdef Letters letters = _letters(text)
    cdef vector[Span] spans
    cdef size_t at
    with nogil:
        answers.find_sentences(letters, spans)
    out = []
    for at in range(spans.size()):
        out.append((spans[at].first, spans[at].second))
    return out


def read_courtesies(
    *,
    str greeting not None,
    str opening not None,
    str lead not None,
    str closing not None,
    str footer not None,
    str farewell not None,
    str further not None,
    cues not None,
):
    """Take the patterns of courtesies, and the words of which a closing has one."""
    global courtesies
    cdef CourtesyRules rules
    cdef vector[Letters] words
    rules.greeting, rules.opening, rules.lead = _letters(greeting), _letters(opening), _letters(lead)
    rules.closing, rules.footer = _letters(closing), _letters(footer)
    rules.farewell, rules.further = _letters(farewell), _letters(further)
    for cue in cues:
        words.push_back(_letters(cue))
    del courtesies
    courtesies = new Courtesies(rules, words)


cdef class ReadAnswer:
    """The sentences of an answer and its numbers and names, as `read_answer` has read them.

    One that is made without it is of an answer without a sentence.
    """

    cdef AnswerText data

    def __len__(self):
        return self.data.answer.sentences.size()

    def sentence(self, size_t at):
        """Return a sentence.

        Returns:
            Its start and end in the answer as it came, where its words begin and end in `bare`, and
            it without bullet, item number and superfluous space.
        """
        if at >= self.data.answer.sentences.size():
            raise IndexError("no such sentence")
        return (
            self.data.places[at].first,
            self.data.places[at].second,
            self.data.answer.sentences[at].words,
            self.data.answer.sentences[at].end,
            _string(self.data.answer.sentences[at].text),
        )

    @property
    def bare(self):
        """The text without markup, of which the sentences are parts."""
        return _string(self.data.answer.bare)

    @property
    def numbers(self):
        """The numbers as (canonical form, as written)."""
        cdef size_t at
        out = []
        for at in range(self.data.answer.numbers.size()):
            out.append((
                _string(self.data.answer.numbers[at].form), _string(self.data.answer.numbers[at].raw)
            ))
        return out

    @property
    def names(self):
        """The stems of capitalised words that do not begin a sentence."""
        cdef size_t at
        out = []
        for at in range(self.data.answer.names.size()):
            out.append(_string(self.data.answer.names[at]))
        return out

    @property
    def replaced(self):
        """How many values of sentences stand in place of another one that passages have."""
        return self.data.replaced

    def place(self, Py_ssize_t start, Py_ssize_t end):
        """Return where [start, end) of `bare` stands in the answer as it came."""
        cdef Span found = self.data.place(start, end)
        return found.first, found.second


def read_answer(str text not None, list edits not None, passages, str query not None):
    """Split an answer into sentences, without its format, courtesies and list of sources.

    Args:
        text: The plain text of the answer.
        edits: What made it plain: (start, end, start and end in the answer as it came), in order.
        passages: The plain texts of the passages, as which its numbers, dates and times are read.
        query: The plain text of the query, as which they are read where no passage has them.
    """
    cdef ReadAnswer out = ReadAnswer.__new__(ReadAnswer)
    cdef Text data = _text(text), asked = _text(query)
    cdef vector[Text] pages = _texts(passages)
    cdef Edits plain
    if courtesies is NULL:
        raise RuntimeError("the courtesies have not been read")
    for start, end, low, high in edits:
        plain.add(start, end, low, high)
    with nogil:
        answer_texts.read(data, plain, pages, asked, courtesies[0], out.data)
    return out


cdef Languages languages
cdef list language_codes = []


def detect_script(str text not None):
    """Return "latin", "other" or "" (no letters), judged by the first 200 characters."""
    cdef Script script = find_script(_text(text))
    return "latin" if script == LATIN else "other" if script == OTHER_SCRIPT else ""


def read_languages(words, letters):
    """Take the commonest words of languages by code, English first, and the letters of some."""
    cdef int number
    cdef Py_UCS4 sign
    for code, several in words.items():
        number = languages.add_language()
        language_codes.append(code)
        for word in several:
            languages.add_word(number, _letters(word))
        for sign in letters.get(code, ""):
            languages.add_letter(number, sign)


def identify_language(str text not None):
    """Return the language of the opening of a text.

    Returns:
        A code, "other" or "" (too short, or no words at all). Nearly related languages may be taken
        for each other, but hardly ever for English.
    """
    cdef int found = languages.identify(_text(text))
    if found >= 0:
        return language_codes[found]
    return "" if found == UNKNOWN_LANGUAGE else "other"


cdef enum:
    HALF_COVERED = 8  # content stems of half a stretch; a stretch of 16 is a long sentence
    HALF_PROXIMITY = 8  # content stems of half a stretch; a stretch is about two sentences
    HALF_CLAUSE = 4  # content stems of half a stretch that affirms what an answer denies
    NEAR = 3  # content stems: within a clause
    MAX_POSITIONS = 40  # by stem: a word as frequent as that locates nothing
    MAX_NEGATIONS = 40  # each negation of an answer meets each window of its passages
    MAX_WINDOWS = 400
    SENTENCE_WIDTH = 12  # the features of a sentence, of which two are:
    MISSING_NUMBERS = 9
    STRAYED_NUMBERS = 10

# Of the idf of a passage's negation, and of all: from here on a sentence restates it.
cdef double RESTATED = 0.3
cdef double LEAST_MASS = 5.0
cdef double COMMON = 5.0  # idf: a novel stem more common than this may be mere wording


cdef double add_up(const double* values, size_t count) noexcept nogil:
    """Return the sum of the values, added one after the other.

    The interpreter's `sum` carries what rounding loses from Python 3.12 on; a share that is 0 would
    be -2e-16 in one version, beyond a cut of the grounding model, and the score another by .007.
    """
    cdef double total = 0.0
    cdef size_t at
    for at in range(count):
        total += values[at]
    return total


cdef struct RecordCounts:
    long denied, unknown, agreed, hours, hours_agreed


cdef struct GradeWeights:
    double saturation, length, low, span
    double coverage, stretch, frequency, pairs


cdef struct ExactSum:
    double total
    double lost


cdef inline void add_exactly(ExactSum* partial, double value) noexcept nogil:
    """Add a value; `total` + `lost` is `math.fsum` for sums as short as a clause."""
    cdef double new = partial.total + value
    cdef double back = new - partial.total
    partial.lost += (partial.total - (new - back)) + (value - back)
    partial.total = new


cdef string _bytes(str text):
    return text.encode("utf-8", "surrogatepass")


cdef bint _has_odd_case(const Letters& text) noexcept nogil:
    """Return whether a text has a letter whose lower case depends on others, or is two characters."""
    cdef size_t at
    cdef Py_UCS4 sign
    for at in range(text.size()):
        sign = text[at]
        if sign == 0x130 or sign == 0x3A3:
            return True
    return False


cdef str _lower(str text, vector[Span]& spans):
    """Return a text with odd case as a lexicon reads it, and place its parts in it.

    Its parts have to be put in lower case alone where "\u0130" changes their length, and where a
    script without spaces leaves no border to "\u03a3".
    """
    cdef str lower = text.lower()
    cdef Py_UCS4 sign
    cdef size_t at
    cdef Py_ssize_t end = 0
    cdef bint unspaced = False
    for sign in lower:
        unspaced = unspaced or is_unspaced(sign)
    if len(lower) == len(text) and not unspaced:
        return lower
    pieces = []
    for at in range(spans.size()):
        pieces.append(text[spans[at].first : spans[at].second].lower())
        spans[at].first, end = end, end + len(pieces[at])
        spans[at].second = end
    return "".join(pieces)


cdef vector[Span] _word_spans(const Answer& answer) except *:
    """Return where the words of each sentence begin and end in the bare answer."""
    cdef vector[Span] out
    cdef Span span
    cdef size_t at
    for at in range(answer.sentences.size()):
        span.first, span.second = answer.sentences[at].words, answer.sentences[at].end
        out.push_back(span)
    return out


cdef class Vocabulary:
    """Holds what is known of words and stems before any text is read.

    Args:
        rarities: The background rarity by stem.
        rarest: That of a stem which is not listed.
        numerals: Pairs of stems that name the same number, in both directions.
        prefix: Letters that related stems share.
        counts, times, meta, say, text, negations: Stems of a kind; `StemFlag` says what it means.
        hedges, negating, denying: Words of a kind, likewise by `FormFlag`.
    """

    cdef NativeVocabulary data

    def __cinit__(
        self,
        rarities,
        double rarest,
        numerals,
        size_t prefix,
        *,
        counts=(),
        times=(),
        meta=(),
        say=(),
        text=(),
        negations=(),
        hedges=(),
        negating=(),
        denying=(),
    ):
        if rarest <= 0 or min(rarities.values(), default=1.0) <= 0:
            raise ValueError("a rarity has to be above 0")
        self.data.english = &english
        self.data.rarest, self.data.prefix = rarest, prefix
        for stem, rarity in rarities.items():
            self.data.set_rarity(_bytes(stem), rarity)
        for flag, stems in (
            (COUNT, counts),
            (TIME, times),
            (META, meta),
            (SAY, say),
            (TEXT, text),
            (NEGATION, negations),
        ):
            for stem in stems:
                self.data.set_stem_flags(_bytes(stem), flag)
        for flag, words in ((HEDGE, hedges), (NEGATES, negating), (DENIES, denying)):
            for word in words:
                self.data.set_form_flags(_bytes(word), flag)
        for one, other in numerals.items():
            self.data.add_numeral(_bytes(one), _bytes(other))


cdef class PassageIds:
    """The ids of one passage; they hold for one generation of the lexicon."""

    cdef PassageWords words

    @property
    def has_text(self):
        """Whether the passage has a content stem."""
        return self.words.stems.size() > 1


cdef class Lexicon:
    """Numbers words and stems and knows of each what the metrics ask.

    Args:
        vocabulary: What it knows of them before.
        limit: How many words and stems it holds; beyond, it begins anew.
    """

    cdef Vocabulary vocabulary
    cdef NativeLexicon* data

    def __cinit__(self, Vocabulary vocabulary not None, size_t limit):
        cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")
        cdef uint64_t seed = int.from_bytes(os.urandom(8), "little")
        self.vocabulary = vocabulary
        self.data = new NativeLexicon(vocabulary.data, limit, secret, seed)

    def __dealloc__(self):
        del self.data

    def read_passage(self, str text not None, bint structured):
        """Return the ids of a passage.

        Args:
            text: Its text.
            structured: Whether it is a record.
        """
        cdef PassageIds out = PassageIds.__new__(PassageIds)
        cdef bint odd = not text.isascii() and ("\u0130" in text or "\u03a3" in text)
        cdef str lower = text.lower() if odd else text
        cdef Text data = _text(lower)
        if self.data.generation == 0:
            raise RuntimeError("the lexicon is not complete")
        with nogil:
            self.data.read_passage(data, structured, out.words)
        return out

    def is_current(self, PassageIds ids):
        """Return whether the ids still hold."""
        return ids is not None and ids.words.generation == self.data.generation

    def make_room(self):
        """Begin anew where the lexicon is full; call it between two traces."""
        self.data.make_room()


_lexicons = threading.local()


def thread_lexicon(make):
    """Return the lexicon of this thread, which is made on its first call."""
    try:
        return _lexicons.own
    except AttributeError:
        _lexicons.own = make()
        return _lexicons.own


cdef class Comparison:
    """One trace: its passages as one stream of stems, its answer by sentence, its query.

    Args:
        lexicon: Where words have their numbers.
        passages: A `PassageIds` of each passage.
        answer: The sentences of the answer.
        query: The content stems of the query in order.
    """

    cdef Lexicon owner_of_data  # keeps `lexicon` alive
    cdef NativeLexicon* lexicon
    cdef long epoch
    cdef readonly bint structured
    cdef vector[int] stream, owner
    cdef vector[size_t] starts
    cdef list passages
    cdef vector[const PassageWords*] passage_words  # which `passages` keep
    cdef vector[int] forms  # of the answer's words
    cdef vector[int] stems  # content stems by sentence, with repetitions
    cdef vector[size_t] ends
    cdef vector[int] content  # each once in a sentence
    cdef vector[size_t] content_ends
    cdef vector[double] masses  # by sentence: idf of its content
    cdef vector[int] query  # in order, with repetitions
    cdef vector[int] words  # all different stems of answer and query, by local index
    cdef vector[char] in_answer, in_query, near_query
    cdef size_t answer_size  # those of the answer come first
    cdef vector[size_t] first  # of each local index: its positions are places[first[i]:first[i+1]]
    cdef vector[int] places
    # of the coverage
    cdef vector[double] support, by_words, by_place, by_pairs, novel
    cdef vector[int] copied
    cdef double mass, matched, in_query_mass
    cdef long content_count, stem_count, novel_count, pairs, pairs_copied
    cdef long density, copied3, copied5, follows, in_order
    cdef int worst
    cdef vector[int] worst_halves
    cdef vector[double] worst_masses
    cdef vector[double] clause_mass  # by half stretch, of `_best_stretch`; zeros between two calls
    cdef vector[int] clause_halves

    def __cinit__(
        self,
        Lexicon lexicon not None,
        list passages not None,
        ReadAnswer answer not None,
        list query not None,
        bint structured,
    ):
        cdef NativeLexicon* data = lexicon.data
        cdef PassageIds ids
        cdef vector[Span] spans
        cdef vector[string] words
        cdef str lower
        cdef string narrow
        cdef Text text
        self.owner_of_data, self.lexicon = lexicon, data
        self.passages, self.structured = passages, structured
        self.worst = -1
        # from here on the stems are those of this trace, even if an error ends it
        data.epoch += 1
        self.epoch = data.epoch
        if data.generation == 0:
            raise RuntimeError("the lexicon is not complete")
        for item in passages:
            ids = <PassageIds?>item
            if ids.words.generation != data.generation:
                raise RuntimeError("the lexicon has begun anew since")
            self.passage_words.push_back(&ids.words)
        for word in query:
            if not <str?>word:
                raise ValueError("an empty stem")
            words.push_back(_bytes(word))
        spans = _word_spans(answer.data.answer)
        narrow = as_bytes(answer.data.answer.bare)  # which are quicker to read
        if not narrow.empty():
            text = Text(narrow.data(), 1, narrow.size())
        elif _has_odd_case(answer.data.answer.bare):
            lower = _lower(answer.bare, spans)
            text = _text(lower)
        else:
            text = Text(answer.data.answer.bare)
        with nogil:
            self._read(text, spans, words)

    cdef int _read(self, const Text& text, vector[Span]& spans, vector[string]& query) except -1 nogil:
        cdef NativeLexicon* lexicon = self.lexicon
        cdef const PassageWords* passage
        cdef int stem
        cdef size_t number, at, sentence
        cdef vector[double] rarities
        for number in range(self.passage_words.size()):
            passage = self.passage_words[number]
            self.starts.push_back(self.stream.size())
            self.stream.insert(self.stream.end(), passage.stems.begin(), passage.stems.end())
            self.owner.resize(self.stream.size(), <int>number)
        for sentence in range(spans.size()):
            rarities.clear()
            at = self.forms.size()
            lexicon.read(text, spans[sentence].first, spans[sentence].second, self.forms)
            lexicon.mark += 1
            for at in range(at, self.forms.size()):
                stem = lexicon.form_data[self.forms[at]].stem
                if stem == 0:
                    continue
                self.stems.push_back(stem)
                if lexicon.stem_data[stem].marked != lexicon.mark:
                    lexicon.stem_data[stem].marked = lexicon.mark
                    self.content.push_back(stem)
                    rarities.push_back(lexicon.stem_data[stem].rarity)
                    self._want(stem)
            self.ends.push_back(self.stems.size())
            self.content_ends.push_back(self.content.size())
            self.masses.push_back(add_up(rarities.data(), rarities.size()))
        self.answer_size = self.words.size()
        self.in_answer.resize(self.answer_size, 1)
        for number in range(query.size()):
            stem = lexicon.stem(query[number])
            self.query.push_back(stem)
            self._want(stem)
        self.in_answer.resize(self.words.size(), 0)
        self.in_query.resize(self.words.size(), 0)
        for at in range(self.query.size()):
            self.in_query[lexicon.stem_data[self.query[at]].local] = 1
        self.near_query = self.in_query
        self._locate()
        return 0

    @property
    def has_content(self):
        """Whether a sentence has a content stem."""
        return not self.content.empty()

    cdef int _want(self, int stem) except -1 nogil:
        if self.lexicon.stem_data[stem].wanted != self.epoch:
            self.lexicon.stem_data[stem].wanted = self.epoch
            self.lexicon.stem_data[stem].local = <int>self.words.size()
            self.words.push_back(stem)
        return 0

    cdef int _locate(self) except -1 nogil:
        """Find the positions of all wanted stems, and mark all stems of the passages as seen."""
        cdef NativeLexicon* lexicon = self.lexicon
        cdef size_t at, count = self.words.size()
        cdef int stem
        cdef vector[size_t] filled
        self.first.assign(count + 1, 0)
        for at in range(self.stream.size()):
            stem = self.stream[at]
            lexicon.stem_data[stem].seen = self.epoch
            if lexicon.stem_data[stem].prefix >= 0:
                lexicon.prefix_seen[lexicon.stem_data[stem].prefix] = self.epoch
            if lexicon.stem_data[stem].wanted == self.epoch:
                self.first[lexicon.stem_data[stem].local + 1] += 1
        for at in range(count):
            self.first[at + 1] += self.first[at]
        self.places.resize(self.first[count])
        filled = self.first
        for at in range(self.stream.size()):
            stem = self.stream[at]
            if lexicon.stem_data[stem].wanted == self.epoch:
                self.places[filled[lexicon.stem_data[stem].local]] = <int>at
                filled[lexicon.stem_data[stem].local] += 1
        return 0

    cdef int _check(self) except -1:
        if self.lexicon.epoch != self.epoch:
            raise RuntimeError("another trace has been read since")
        return 0

    cdef inline size_t _count(self, int local) noexcept nogil:
        """The number of positions that count for answers: the first 40."""
        cdef size_t count = self.first[local + 1] - self.first[local]
        return count if count < MAX_POSITIONS else MAX_POSITIONS

    cdef inline size_t _stem_count(self, int stem) noexcept nogil:
        if self.lexicon.stem_data[stem].wanted != self.epoch:
            return 0
        return self._count(self.lexicon.stem_data[stem].local)

    def __contains__(self, str stem):
        """Whether a passage has the stem."""
        self._check()
        cdef int known = self.lexicon.find_stem(_bytes(stem))
        return known >= 0 and self.lexicon.stem_data[known].seen == self.epoch

    # -- relevance

    def grade_passages(self, double saturation, double length, double low, double span, weights):
        """Grade each passage from 0 to 3; None if it has no text. See `relevance.grade_passages`."""
        self._check()
        cdef GradeWeights terms
        cdef vector[double] grades
        cdef size_t at
        terms.saturation, terms.length, terms.low, terms.span = saturation, length, low, span
        terms.coverage, terms.stretch, terms.frequency, terms.pairs = weights
        with nogil:
            self._grade(terms, grades)
        return [grades[at] if grades[at] >= 0 else None for at in range(grades.size())]

    cdef int _grade(self, const GradeWeights& terms, vector[double]& grades) except -1 nogil:
        """Append the grades of the passages; -1 of one that has no text."""
        cdef NativeLexicon* lexicon = self.lexicon
        cdef size_t passages = self.starts.size(), at, p, size, begin, end, half, last_half, i
        cdef double average, weight, stretch, mixed
        cdef vector[int] different
        cdef vector[double] rarities, norms, coverage, frequency, near
        cdef vector[size_t] sizes, near_starts
        cdef vector[int] followed
        cdef size_t all_sizes = 0, halves = 0
        cdef int stem, local, passage, second
        cdef long count
        cdef bint touched
        lexicon.mark += 1
        for at in range(self.query.size()):
            stem = self.query[at]
            if lexicon.stem_data[stem].marked != lexicon.mark:
                lexicon.stem_data[stem].marked = lexicon.mark
                different.push_back(stem)
                rarities.push_back(lexicon.stem_data[stem].rarity)
        cdef double total = add_up(rarities.data(), rarities.size())
        for p in range(passages):
            end = self.starts[p + 1] if p + 1 < passages else self.stream.size()
            size = end - self.starts[p] - 1
            sizes.push_back(size)
            all_sizes += size
            near_starts.push_back(halves)
            halves += size // HALF_PROXIMITY + 2
        average = <double>all_sizes / <double>(passages if passages > 1 else 1)
        if average < 1.0:
            average = 1.0
        for p in range(passages):
            norms.push_back(
                terms.saturation * (1 - terms.length + terms.length * sizes[p] / average)
            )
        coverage.assign(passages, 0.0)
        frequency.assign(passages, 0.0)
        near.assign(halves, 0.0)
        followed.assign(passages, 0)
        for i in range(different.size()):
            weight = rarities[i]
            local = lexicon.stem_data[different[i]].local
            passage, count, last_half = -1, 0, 0
            for at in range(self.first[local], self.first[local + 1]):
                begin = self.places[at]
                if self.owner[begin] != passage:
                    if count:
                        frequency[passage] += weight * count / (count + norms[passage])
                    passage = self.owner[begin]
                    count = 0
                    coverage[passage] += weight
                    last_half = <size_t>-1
                count += 1
                half = (begin - self.starts[passage]) // HALF_PROXIMITY
                if half != last_half:
                    near[near_starts[passage] + half] += weight
                    last_half = half
            if count:
                frequency[passage] += weight * count / (count + norms[passage])
        cdef vector[pair[int, int]] pairs  # of stems that stand side by side, each once
        cdef vector[int] met  # by local index: the last passage where it follows, -1, -2 of others
        cdef pair[int, int] both
        cdef size_t next_first, count_of_pairs = 0
        for at in range(1, self.query.size()):
            both.first, both.second = self.query[at - 1], self.query[at]
            pairs.push_back(both)
        sort(pairs.begin(), pairs.end())
        met.assign(self.words.size(), -2)
        i = 0
        while i < pairs.size():
            next_first = i
            while next_first < pairs.size() and pairs[next_first].first == pairs[i].first:
                second = lexicon.stem_data[pairs[next_first].second].local
                count_of_pairs += met[second] == -2
                met[second] = -1
                next_first += 1
            local = lexicon.stem_data[pairs[i].first].local
            for at in range(self.first[local], self.first[local + 1]):
                passage = self.owner[self.places[at]]
                stem = self.stream[self.places[at] + 1]
                if lexicon.stem_data[stem].wanted != self.epoch:
                    continue
                second = lexicon.stem_data[stem].local
                if met[second] != -2 and met[second] != passage:
                    met[second] = passage
                    followed[passage] += 1
            for i in range(i, next_first):
                met[lexicon.stem_data[pairs[i].second].local] = -2
            i = next_first
        for p in range(passages):
            stretch = 0.0
            touched = coverage[p] != 0.0
            for at in range(near_starts[p], near_starts[p] + sizes[p] // HALF_PROXIMITY + 1):
                weight = near[at] + near[at + 1]
                if near[at] != 0.0 and weight > stretch:
                    stretch = weight
            if not touched:
                grades.push_back(0.0 if sizes[p] > 0 else -1.0)
                continue
            if stretch > total:
                stretch = total
            weight = frequency[p] / total * (terms.saturation + 1) / 1.5
            mixed = (
                terms.coverage * coverage[p] / total
                + terms.stretch * stretch / total
                + terms.frequency * (weight if weight < 1.0 else 1.0)
                + terms.pairs * followed[p] / <double>(count_of_pairs if count_of_pairs else 1)
            )
            weight = (mixed - terms.low) / terms.span
            weight = 0.0 if weight < 0.0 else weight
            grades.push_back(3.0 * (1.0 if weight > 1.0 else weight))
        return 0

    # -- coverage

    cdef int _measure_coverage(self) except -1 nogil:
        cdef NativeLexicon* lexicon = self.lexicon
        cdef size_t sentence, at, begin = 0, content_begin = 0, size, i, place, end
        cdef int stem, local, half, last, length, position, last_position = -1
        cdef double matched, in_query, mass, rarity, support, least = 2.0, best, value
        cdef long copied, count
        cdef vector[double] half_mass
        cdef vector[long] half_mark
        cdef long half_epoch = 0
        cdef vector[int] halves
        cdef vector[int] alive, longer
        half_mass.assign(self.stream.size() // HALF_COVERED + 3, 0.0)
        half_mark.assign(self.stream.size() // HALF_COVERED + 3, 0)
        lexicon.mark += 1
        cdef long novel_mark = lexicon.mark
        self.mass = self.matched = self.in_query_mass = 0.0
        self.content_count = self.stem_count = self.novel_count = self.pairs = 0
        self.pairs_copied = self.density = self.copied3 = self.copied5 = 0
        self.follows = self.in_order = 0
        self.worst = -1
        self.novel.clear()
        self.support.clear()
        self.copied.clear()
        self.by_words.clear()
        self.by_place.clear()
        self.by_pairs.clear()
        for sentence in range(self.ends.size()):
            matched = in_query = 0.0
            half_epoch += 1
            halves.clear()
            for i in range(content_begin, self.content_ends[sentence]):
                stem = self.content[i]
                rarity = lexicon.stem_data[stem].rarity
                local = lexicon.stem_data[stem].local
                count = self._count(local)
                if count == 0:
                    if self.near_query[local]:
                        in_query += rarity
                    else:
                        if lexicon.stem_data[stem].marked != novel_mark:
                            lexicon.stem_data[stem].marked = novel_mark
                            self.novel.push_back(rarity)
                        self.novel_count += 1
                    continue
                matched += rarity
                last = -1
                for at in range(self.first[local], self.first[local] + count):
                    half = self.places[at] // HALF_COVERED
                    if half != last:
                        if half_mark[half] != half_epoch:
                            half_mark[half] = half_epoch
                            half_mass[half] = 0.0
                            halves.push_back(half)
                        half_mass[half] += rarity
                        last = half
            mass = self.masses[sentence]
            self.mass += mass
            self.matched += matched
            self.in_query_mass += in_query
            count = <long>(self.content_ends[sentence] - content_begin)
            self.content_count += count
            support = 1.0
            if mass > 0:
                support = 0.0
                if matched != 0.0:
                    best = 0.0
                    for i in range(halves.size()):
                        half = halves[i]
                        value = half_mass[half]
                        value += half_mass[half + 1] if half_mark[half + 1] == half_epoch else 0.0
                        if value > best:
                            best = value
                    support = best / mass
                    if support > 1.0:
                        support = 1.0
            self.support.push_back(support)
            if support < least:
                least, self.worst = support, <int>sentence
                self.worst_halves = halves
                self.worst_masses.clear()
                for i in range(halves.size()):
                    self.worst_masses.push_back(half_mass[halves[i]])
            if count >= 2:
                self.by_words.push_back((matched + in_query) / mass)
                self.by_place.push_back(support)
            end = self.ends[sentence]
            size = end - begin
            self.stem_count += size
            copied = 0
            if matched != 0.0:
                for i in range(begin, end):
                    if self._count(lexicon.stem_data[self.stems[i]].local):
                        self.density += 1
                i = begin
                while i + 1 < end:
                    local = lexicon.stem_data[self.stems[i]].local
                    count = self._count(local)
                    if count == 0:
                        i += 1
                        continue
                    stem = self.stems[i + 1]
                    if self._count(lexicon.stem_data[stem].local) == 0:
                        i += 2
                        continue
                    alive.clear()
                    for at in range(self.first[local], self.first[local] + count):
                        if self.stream[self.places[at] + 1] == stem:
                            alive.push_back(self.places[at])
                    if alive.empty():
                        i += 1
                        continue
                    length = 2
                    while i + length < end:
                        stem = self.stems[i + length]
                        longer.clear()
                        for at in range(alive.size()):
                            # past the end is only what ended at the "" of the last passage
                            if self.stream[alive[at] + length] == stem:
                                longer.push_back(alive[at])
                        if longer.empty():
                            break
                        alive.swap(longer)
                        length += 1
                    position = alive[0]
                    i += length
                    copied += length - 1
                    self.density += length * length - length
                    if last_position >= 0:
                        self.follows += 1
                        self.in_order += position >= last_position
                    last_position = position
                    if length >= 3:
                        self.copied3 += length
                        if length >= 5:
                            self.copied5 += length
            self.copied.push_back(<int>copied)
            if size > 1:
                self.pairs += size - 1
                self.pairs_copied += copied
                if size > 2:
                    self.by_pairs.push_back(<double>copied / <double>(size - 1))
            begin = end
            content_begin = self.content_ends[sentence]
        return 0

    # -- grounding

    def extract_features(self, list names not None, long number_count, long novel_numbers, record):
        """Compute the features of the answer, as `grounding_features` lists them.

        Args:
            names: The stems of its names.
            number_count: How many numbers it has, and how many of them neither query nor passages.
            novel_numbers: See above.
            record: The counts (denied, unknown, agreed, hours, hours_agreed) of structured passages.

        Returns:
            The values, the rows of the sentences, the contradictions, and the novel names.
        """
        self._check()
        cdef vector[int] stems
        cdef vector[char] is_novel
        cdef RecordCounts counts
        cdef vector[double] values, rows, contradictions
        cdef size_t at, width = SENTENCE_WIDTH
        counts.denied, counts.unknown, counts.agreed, counts.hours, counts.hours_agreed = record
        for name in names:
            stems.push_back(self.lexicon.find_stem(_bytes(name)))
        with nogil:
            self._extract(
                stems, number_count, novel_numbers, counts, values, rows, contradictions, is_novel
            )
        return (
            values,
            [[rows[at + place] for place in range(width)] for at in range(0, rows.size(), width)],
            contradictions,
            [names[at] for at in range(is_novel.size()) if is_novel[at]],
        )

    cdef int _extract(
        self,
        const vector[int]& names,
        long number_count,
        long novel_numbers,
        const RecordCounts& record,
        vector[double]& out,
        vector[double]& rows,
        vector[double]& contradictions,
        vector[char]& is_novel,
    ) except -1 nogil:
        """Append the values, the rows one behind the other and the contradictions.

        `names` are stems, -1 of one that the lexicon does not know; `is_novel` is told of each
        whether neither passages nor query have it.
        """
        cdef NativeLexicon* lexicon = self.lexicon
        cdef const PassageWords* passage
        cdef size_t at, i, size = self.ends.size()
        cdef int stem, local, form
        cdef long hedges = 0, forms = 0, new_forms = 0, common = 0
        cdef double novel_names = 0.0, name_count = <double>names.size()
        cdef vector[double] values
        if self.structured:
            for local in range(<int>self.answer_size):
                if self._count(local) == 0 and self._has_relative(self.words[local]):
                    self.near_query[local] = 1
        self._measure_coverage()
        for at in range(names.size()):
            is_novel.push_back(1)
            stem = names[at]
            if stem >= 0 and lexicon.stem_data[stem].wanted == self.epoch:
                local = lexicon.stem_data[stem].local
                if self._count(local) or self.near_query[local]:
                    is_novel[at] = 0
            novel_names += is_novel[at]
        cdef double mean_place = add_up(self.by_place.data(), self.by_place.size()) / (
            <double>self.by_place.size() if self.by_place.size() else 1.0
        )
        for at in range(self.by_place.size()):
            values.push_back((self.by_place[at] - mean_place) * (self.by_place[at] - mean_place))
        cdef double spread = add_up(values.data(), values.size()) / (
            <double>values.size() if values.size() else 1.0
        )
        values = self.by_words
        sort(values.begin(), values.end())
        cdef double least_words = values[0] if values.size() else 0.0
        cdef double all_words = add_up(values.data(), values.size())
        cdef double two_words = add_up(values.data(), 2 if values.size() > 2 else values.size())
        cdef long word_sentences = <long>self.by_words.size()
        # the query, by its different stems in order
        cdef double query_mass, query_missing, query_repeated
        cdef vector[double] missing, repeated
        values.clear()
        lexicon.mark += 1
        for at in range(self.query.size()):
            stem = self.query[at]
            if lexicon.stem_data[stem].marked == lexicon.mark:
                continue
            lexicon.stem_data[stem].marked = lexicon.mark
            local = lexicon.stem_data[stem].local
            values.push_back(lexicon.stem_data[stem].rarity)
            if self._count(local) == 0:
                missing.push_back(lexicon.stem_data[stem].rarity)
            if self.in_answer[local]:
                repeated.push_back(lexicon.stem_data[stem].rarity)
        query_mass = add_up(values.data(), values.size())
        query_missing = add_up(missing.data(), missing.size())
        query_repeated = add_up(repeated.data(), repeated.size())
        # words as they are written
        lexicon.mark += 1
        for i in range(self.passage_words.size()):
            passage = self.passage_words[i]
            for at in range(passage.forms.size()):
                lexicon.form_data[passage.forms[at]].seen = lexicon.mark
        cdef long in_passages = lexicon.mark
        lexicon.mark += 1
        for at in range(self.forms.size()):
            form = self.forms[at]
            if lexicon.form_data[form].flags & HEDGE:
                hedges += 1
            if lexicon.form_data[form].seen != lexicon.mark:
                forms += 1
                if lexicon.form_data[form].seen != in_passages:
                    new_forms += 1
                lexicon.form_data[form].seen = lexicon.mark
        cdef long words = <long>self.forms.size()
        for at in range(self.novel.size()):
            common += COMMON > self.novel[at]
        cdef double refuted = 0.0, lost = 0.0
        cdef long about_passages = self._weigh_negations(&refuted, &lost)
        cdef double mass = self.mass
        cdef double content = <double>(self.content_count if self.content_count > 1 else 1)
        cdef double stems = <double>(self.stem_count if self.stem_count > 1 else 1)
        cdef double log_claims = log1p(<double>size)
        cdef double log_novel = log1p(<double>self.novel.size())
        cdef double least_place = 0.0, least_pairs = 0.0
        for at in range(self.by_place.size()):
            if at == 0 or self.by_place[at] < least_place:
                least_place = self.by_place[at]
        for at in range(self.by_pairs.size()):
            if at == 0 or self.by_pairs[at] < least_pairs:
                least_pairs = self.by_pairs[at]
        cdef double few_words = <double>(words if words > 5 else 5)
        cdef double sentences = <double>(size if size > 1 else 1)
        out.push_back(1 - (self.matched + self.in_query_mass) / mass if mass != 0.0 else 0.0)
        out.push_back(1 - self.matched / mass if mass != 0.0 else 0.0)
        out.push_back(1 - least_words if word_sentences else 0.0)
        out.push_back(1 - two_words / (2 if word_sentences > 2 else word_sentences) if word_sentences else 0.0)
        out.push_back(1 - all_words / word_sentences if word_sentences else 0.0)
        out.push_back(1 - least_place if self.by_place.size() else 0.0)
        out.push_back(1 - mean_place if self.by_place.size() else 0.0)
        out.push_back(sqrt(spread))
        out.push_back(log_novel)
        out.push_back(log1p(add_up(self.novel.data(), self.novel.size())))
        out.push_back(self.novel_count / content)
        out.push_back(common / content)
        out.push_back(1 - self.pairs_copied / <double>(self.pairs if self.pairs > 1 else 1))
        out.push_back(1 - least_pairs if self.by_pairs.size() else 0.0)
        out.push_back(-log1p(self.density / stems))
        out.push_back(-self.copied5 / stems)
        out.push_back(-self.copied3 / stems)
        out.push_back(log1p(novel_names))
        out.push_back(novel_names / (name_count + 2))
        out.push_back(log1p(<double>novel_numbers))
        out.push_back(novel_numbers / <double>(number_count + 1))
        out.push_back(log1p(<double>number_count))
        out.push_back(log1p(name_count))
        out.push_back(log1p(<double>words))
        out.push_back(log_claims)
        out.push_back(self.in_order / <double>self.follows if self.follows else 0.5)
        out.push_back(hedges / few_words)
        out.push_back(log1p(<double>hedges))
        out.push_back(about_passages / few_words)
        out.push_back(1.0 if self.structured else 0.0)
        out.push_back(query_missing / query_mass if query_mass > 0 else 0.0)
        out.push_back(query_repeated / query_mass if query_mass > 0 else 0.0)
        out.push_back(words / sentences / 30)
        out.push_back(log_novel - log_claims)
        out.push_back(log1p(<double>record.denied))
        out.push_back(log1p(<double>record.unknown))
        out.push_back(log1p(<double>record.agreed))
        out.push_back(log1p(<double>record.hours))
        out.push_back(log1p(<double>record.hours_agreed))
        out.push_back(new_forms / <double>(forms if forms > 1 else 1))
        if not self.structured:
            self._sentence_rows(names, rows)
        values.clear()
        at = 0
        while at < rows.size():
            values.push_back(rows[at + MISSING_NUMBERS] + rows[at + STRAYED_NUMBERS])
            at += SENTENCE_WIDTH
        cdef double strayed = add_up(values.data(), values.size())
        refuted = log1p(refuted)
        contradictions.push_back(0.0 if self.structured else refuted)
        contradictions.push_back(refuted if self.structured else 0.0)
        contradictions.push_back(log1p(strayed))
        contradictions.push_back(log1p(lost))
        contradictions.push_back(log1p(<double>self._count_misplaced()))
        return 0

    cdef bint _has_relative(self, int stem) noexcept nogil:
        """Whether a passage has the stem in another form, or as a number in words or digits."""
        cdef NativeLexicon* lexicon = self.lexicon
        cdef int prefix = lexicon.stem_data[stem].prefix, numeral = lexicon.stem_data[stem].numeral
        if prefix >= 0 and lexicon.prefix_seen[prefix] == self.epoch:
            return True
        return numeral > 0 and lexicon.stem_data[numeral].seen == self.epoch

    cdef bint _is_figure(self, int stem) noexcept nogil:
        return (self.lexicon.stem_data[stem].flags & (DIGIT_FIRST | COUNT)) != 0

    cdef int _sentence_rows(self, const vector[int]& names, vector[double]& rows) except -1 nogil:
        cdef NativeLexicon* lexicon = self.lexicon
        cdef size_t sentence, i, begin = 0, stems_begin = 0, size = self.ends.size()
        cdef vector[char] novel, named
        cdef vector[double] new
        cdef int local, stem
        cdef long name_count, time_count, missing
        cdef double new_mass, mass, strayed
        cdef bint any_figure
        novel.assign(self.answer_size, 0)
        named.assign(self.answer_size, 0)
        for local in range(<int>self.answer_size):
            stem = self.words[local]
            novel[local] = (
                self._count(local) == 0
                and not lexicon.stem_data[stem].flags & META
                and not self.in_query[local]
                and not self._has_relative(stem)
            )
        for i in range(names.size()):
            stem = names[i]
            if stem >= 0 and lexicon.stem_data[stem].wanted == self.epoch:
                local = lexicon.stem_data[stem].local
                if local < <int>self.answer_size:
                    named[local] = 1
        for sentence in range(size):
            new.clear()
            name_count = time_count = missing = 0
            strayed = new_mass = mass = 0.0
            any_figure = False
            for i in range(begin, self.content_ends[sentence]):
                stem = self.content[i]
                local = lexicon.stem_data[stem].local
                if self._is_figure(stem):
                    any_figure = True
                if novel[local]:
                    new.push_back(lexicon.stem_data[stem].rarity)
                    name_count += named[local]
                    time_count += (lexicon.stem_data[stem].flags & TIME) != 0
            if not new.empty():
                mass = self.masses[sentence]
                new_mass = add_up(new.data(), new.size())
            if any_figure:
                missing = self._weigh_numbers(stems_begin, self.ends[sentence], novel, &strayed)
            rows.push_back(log1p(new_mass))
            rows.push_back(log1p(<double>new.size()))
            rows.push_back(new_mass / mass if mass != 0.0 else 0.0)
            rows.push_back(log1p(<double>(self.ends[sentence] - stems_begin)))
            rows.push_back(log1p(<double>self.copied[sentence]))
            rows.push_back(1 - self.support[sentence])
            rows.push_back(sentence / <double>size)
            rows.push_back(0.0 if sentence else 1.0)
            rows.push_back(<double>name_count)
            rows.push_back(<double>missing)
            rows.push_back(strayed)
            rows.push_back(<double>time_count)
            begin, stems_begin = self.content_ends[sentence], self.ends[sentence]
        return 0

    cdef long _weigh_numbers(
        self, size_t begin, size_t end, vector[char]& novel, double* strayed
    ) noexcept nogil:
        """Count a sentence's numbers that no passage has; add up how far its others stray."""
        cdef NativeLexicon* lexicon = self.lexicon
        cdef long missing = 0
        cdef size_t i, at, low, high, near, most, both, j
        cdef int stem, local, other
        cdef long wanted
        cdef double share
        for i in range(begin, end):
            stem = self.stems[i]
            if not self._is_figure(stem):
                continue
            local = lexicon.stem_data[stem].local
            if novel[local]:
                missing += 1
                continue
            if self._count(local) == 0:
                continue
            lexicon.mark += 1
            near = 0
            low = i - NEAR if i >= begin + NEAR else begin
            high = i + NEAR + 1 if i + NEAR + 1 < end else end
            for j in range(low, high):
                other = self.stems[j]
                if other != stem and lexicon.stem_data[other].marked != lexicon.mark:
                    lexicon.stem_data[other].marked = lexicon.mark
                    near += 1
            if near == 0:
                continue
            wanted = lexicon.mark
            most = 0
            # each place takes the stems that it meets off the list, and gives them back
            for at in range(self.first[local], self.first[local] + self._count(local)):
                both = 0
                low = self.places[at] - 2 * NEAR if self.places[at] >= 2 * NEAR else 0
                high = self.places[at] + 2 * NEAR + 1
                if high > self.stream.size():
                    high = self.stream.size()
                for j in range(low, high):
                    other = self.stream[j]
                    if lexicon.stem_data[other].marked == wanted:
                        lexicon.stem_data[other].marked = -wanted
                        both += 1
                for j in range(low, high):
                    if lexicon.stem_data[self.stream[j]].marked == -wanted:
                        lexicon.stem_data[self.stream[j]].marked = wanted
                if both > most:
                    most = both
                    if both == near:
                        break
            share = <double>most / <double>near
            strayed[0] += 1 - share
        return missing

    cdef long _count_misplaced(self) noexcept nogil:
        """Count the numbers whose neighbours never have them beside them in a passage, but others."""
        cdef NativeLexicon* lexicon = self.lexicon
        cdef size_t sentence, i, begin = 0, end, at
        cdef int stem, left, right, local, other, place
        cdef long count = 0
        cdef bint beside, number, same
        for sentence in range(self.ends.size()):
            end = self.ends[sentence]
            for i in range(begin, end):
                stem = self.stems[i]
                if not self._is_figure(stem):
                    continue
                left = self.stems[i - 1] if i > begin else 0
                right = self.stems[i + 1] if i + 1 < end else 0
                local = lexicon.stem_data[stem].local
                beside = False
                for at in range(self.first[local], self.first[local] + self._count(local)):
                    place = self.places[at]
                    # before the first stem stands the end of the last passage
                    other = self.stream[place - 1] if place else 0
                    if other == left or self.stream[place + 1] == right:
                        beside = True
                        break
                if beside:
                    continue
                number = same = False
                if left and not self._is_figure(left):
                    local = lexicon.stem_data[left].local
                    for at in range(self.first[local], self.first[local] + self._count(local)):
                        other = self.stream[self.places[at] + 1]
                        same = same or (other and other == lexicon.stem_data[stem].numeral)
                        number = number or (lexicon.stem_data[other].flags & (DECIMAL | COUNT)) != 0
                if right and not self._is_figure(right):
                    local = lexicon.stem_data[right].local
                    for at in range(self.first[local], self.first[local] + self._count(local)):
                        place = self.places[at]
                        other = self.stream[place - 1] if place else 0
                        same = same or (other and other == lexicon.stem_data[stem].numeral)
                        number = number or (lexicon.stem_data[other].flags & (DECIMAL | COUNT)) != 0
                count += number and not same
            begin = end
        return count

    cdef double _mass(self, vector[int]& stems) noexcept nogil:
        cdef ExactSum partial
        cdef size_t at
        partial.total = partial.lost = 0.0
        for at in range(stems.size()):
            add_exactly(&partial, self.lexicon.stem_data[stems[at]].rarity)
        return partial.total + partial.lost

    cdef long _weigh_negations(self, double* refuted, double* lost) except -1 nogil:
        """Compare what answer and passages deny; all shares are of idf.

        `refuted` gains the shares of words near the answer's negations that are near none of a
        passage, where one stretch of passage has more of them; `lost` the shares of passages'
        negations that a sentence has which denies them nowhere. Returned is the number of the
        answer's negations about the passages ("the article does not mention").
        """
        cdef NativeLexicon* lexicon = self.lexicon
        cdef vector[vector[int]] denied, windows, lost_words
        cdef vector[int] heads, both, shared, kept_best
        cdef vector[int] none
        cdef size_t at, i, j, low, high, words = self.forms.size(), sentence, begin, negation
        cdef int stem
        cdef long about_passages = 0
        cdef bint says, of_text, first, fits
        cdef double mass, said, kept, value, whole, most
        cdef const PassageWords* passage
        for j in range(self.passage_words.size()):
            passage = self.passage_words[j]
            begin = 0
            for at in range(passage.heads.size()):
                if windows.size() == MAX_WINDOWS:
                    break
                heads.push_back(passage.heads[at])
                windows.push_back(none)
                for i in range(begin, passage.near_ends[at]):
                    windows.back().push_back(passage.near[i])
                begin = passage.near_ends[at]
        for at in range(words):
            if not lexicon.form_data[self.forms[at]].flags & NEGATES:
                continue
            if denied.size() == MAX_NEGATIONS:
                break
            says = of_text = False
            denied.push_back(none)
            lexicon.mark += 1
            low = at - SCOPE if at >= SCOPE else 0
            high = at + 1 + SCOPE if at + 1 + SCOPE < words else words
            for i in range(low, high):
                stem = lexicon.form_data[self.forms[i]].stem
                if stem == 0:
                    continue
                if at < i < at + 4 and lexicon.stem_data[stem].flags & SAY:
                    says = True
                if lexicon.stem_data[stem].flags & NEGATION or lexicon.stem_data[stem].marked == lexicon.mark:
                    continue
                lexicon.stem_data[stem].marked = lexicon.mark
                denied.back().push_back(stem)
                if lexicon.stem_data[stem].flags & TEXT:
                    of_text = True
            if says and of_text:
                about_passages += 1
            elif not denied.back().empty():
                mass = self._mass(denied.back())
                said = self._best_stretch(denied.back())
                said = mass if mass < said else said
                if said != 0.0:
                    kept = 0.0
                    for i in range(windows.size()):
                        both.clear()
                        for j in range(windows[i].size()):
                            if lexicon.stem_data[windows[i][j]].marked == lexicon.mark:
                                both.push_back(windows[i][j])
                        if not both.empty():
                            value = self._mass(both)
                            if value > kept:
                                kept = value
                    if said > kept:
                        refuted[0] += (mass - kept) / mass
        if self.structured:
            return about_passages
        for at in range(windows.size()):
            stem = heads[at]
            if not self._in_answer(stem):
                continue
            i = 0
            for j in range(windows[at].size()):
                i += self._in_answer(windows[at][j])
            if i < 2:
                continue
            lexicon.mark += 1
            for j in range(windows[at].size()):
                lexicon.stem_data[windows[at][j]].marked = lexicon.mark
            first, most, begin = True, 0.0, 0
            shared.clear()
            for sentence in range(self.content_ends.size()):
                fits = False
                both.clear()
                for j in range(begin, self.content_ends[sentence]):
                    if self.content[j] == stem:
                        fits = True
                    if lexicon.stem_data[self.content[j]].marked == lexicon.mark:
                        both.push_back(self.content[j])
                begin = self.content_ends[sentence]
                if fits:
                    value = self._mass(both)
                    if first or value > most:
                        first, most = False, value
                        shared = both
            whole = self._mass(windows[at])
            value = RESTATED * whole
            if shared.size() < 2 or most < (value if value > LEAST_MASS else LEAST_MASS):
                continue
            fits = True
            for negation in range(denied.size()):
                both.clear()
                for j in range(shared.size()):
                    if _holds(denied[negation], shared[j]):
                        both.push_back(shared[j])
                if self._mass(both) >= most / 2:
                    fits = False
                    break
            if not fits:
                continue
            for i in range(lost_words.size()):
                first = True
                for j in range(shared.size()):
                    if not _holds(lost_words[i], shared[j]):
                        first = False
                        break
                if first:
                    fits = False
                    break
            if fits:
                lost_words.push_back(shared)
                lost[0] += most / whole
        return about_passages

    cdef bint _in_answer(self, int stem) noexcept nogil:
        return (
            self.lexicon.stem_data[stem].wanted == self.epoch
            and <size_t>self.lexicon.stem_data[stem].local < self.answer_size
        )

    cdef double _best_stretch(self, const vector[int]& stems) except -1 nogil:
        """Return the most idf of stems that stand in one stretch of the passages."""
        cdef NativeLexicon* lexicon = self.lexicon
        cdef vector[int] ordered  # by their letters, so that sums do not depend on the lexicon
        cdef size_t at, i, place
        cdef int local, stem, half, last
        cdef double rarity, most = 0.0, value
        for at in range(stems.size()):
            if self._stem_count(stems[at]) == 0:
                continue
            place = ordered.size()
            ordered.push_back(stems[at])
            while place and lexicon.before(stems[at], ordered[place - 1]):
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = stems[at]
        self.clause_mass.resize(self.stream.size() // HALF_CLAUSE + 2, 0.0)
        self.clause_halves.clear()
        for i in range(ordered.size()):
            stem = ordered[i]
            local, rarity, last = lexicon.stem_data[stem].local, lexicon.stem_data[stem].rarity, -1
            for at in range(self.first[local], self.first[local] + self._count(local)):
                half = self.places[at] // HALF_CLAUSE
                if half != last:
                    if self.clause_mass[half] == 0.0:
                        self.clause_halves.push_back(half)
                    self.clause_mass[half] += rarity
                    last = half
        for i in range(self.clause_halves.size()):
            half = self.clause_halves[i]
            value = self.clause_mass[half] + self.clause_mass[half + 1]
            if value > most:
                most = value
        for i in range(self.clause_halves.size()):
            self.clause_mass[self.clause_halves[i]] = 0.0
        return most

    def find_worst_sentence(self):
        """Return the sentence of least support, that support, and the passage nearest to it.

        Call it after `extract_features`.

        Returns:
            The index (-1 without sentences), the support, and the passage's index or None.
        """
        self._check()
        if self.worst < 0:
            return -1, 0.0, None
        cdef int place = self._find_worst_place()
        return self.worst, self.support[self.worst], self.owner[place] if place >= 0 else None

    cdef int _find_worst_place(self) except -2 nogil:
        """Return a place in the stretch that has most of the worst sentence, -1 if none has any.

        Of equal stretches it is the one that the sentence meets first.
        """
        cdef vector[pair[int, double]] halves  # by their place, with the mass of each
        cdef vector[int] best
        cdef pair[int, double] one
        cdef size_t i, at
        cdef int half, local
        cdef double mass, most = 0.0
        for i in range(self.worst_halves.size()):
            one.first, one.second = self.worst_halves[i], self.worst_masses[i]
            halves.push_back(one)
        sort(halves.begin(), halves.end())
        for i in range(halves.size()):
            mass = halves[i].second
            if i + 1 < halves.size() and halves[i + 1].first == halves[i].first + 1:
                mass += halves[i + 1].second
            if mass > most:
                most = mass
                best.clear()
            if mass == most:
                best.push_back(halves[i].first)
        if most == 0.0:
            return -1
        for i in range(self.content_ends[self.worst - 1] if self.worst else 0, self.content_ends[self.worst]):
            local = self.lexicon.stem_data[self.content[i]].local
            for at in range(self.first[local], self.first[local] + self._count(local)):
                half = self.places[at] // HALF_COVERED
                if binary_search(best.begin(), best.end(), half):
                    return half * HALF_COVERED
        return best[0] * HALF_COVERED

    # -- citation support

    def measure_support(self, size_t sentence, list passages not None, double low, double span, double lack):
        """Measure how far passages hold a sentence's content words, weighted by idf.

        Args:
            sentence: Its index.
            passages: Indices of passages, each once.
            low: The overlap from which on there is support.
            span: From there to full support.
            lack: The factor for a number that the source lacks.

        Returns:
            The support by passage, and the support by all together.
        """
        self._check()
        if sentence >= self.masses.size():
            raise IndexError("no such sentence")
        cdef NativeLexicon* lexicon = self.lexicon
        cdef double mass = self.masses[sentence], rarity, anywhere = 0.0, value, best, most = 0.0
        if mass == 0.0:
            return dict.fromkeys(passages, 1.0), 1.0
        cdef size_t count = len(passages), at, i, j, end, halves = 0
        cdef vector[int] slot  # by passage: its place among those asked for, or -1
        cdef vector[size_t] near_starts
        cdef vector[int] base
        cdef vector[double] held, near
        cdef vector[char] missing, inside
        cdef bint missing_anywhere = False
        cdef int passage, local, place, last, bucket, k, stem
        cdef size_t holders
        slot.assign(self.starts.size(), -1)
        for i in range(count):
            passage = passages[i]
            if not 0 <= passage < <int>self.starts.size():
                raise IndexError("no such passage")
            slot[passage] = <int>i
            end = (
                self.starts[passage + 1]
                if <size_t>passage + 1 < self.starts.size()
                else self.stream.size()
            )
            base.push_back(<int>(self.starts[passage] // HALF_COVERED))
            near_starts.push_back(halves)
            halves += end // HALF_COVERED - self.starts[passage] // HALF_COVERED + 3
        near_starts.push_back(halves)
        near.assign(halves, 0.0)
        held.assign(count, 0.0)
        missing.assign(count, 0)
        for i in range(self.content_ends[sentence - 1] if sentence else 0, self.content_ends[sentence]):
            stem = self.content[i]
            rarity = lexicon.stem_data[stem].rarity
            local = lexicon.stem_data[stem].local
            inside.assign(count, 0)
            holders = 0
            last = -1
            for at in range(self.first[local], self.first[local] + self._count(local)):
                place = self.places[at]
                k = slot[self.owner[place]]
                if k < 0:
                    continue
                if not inside[k]:
                    inside[k] = 1
                    holders += 1
                    held[k] += rarity
                    last = -1
                bucket = place // HALF_COVERED
                if bucket != last:
                    near[near_starts[k] + bucket - base[k]] += rarity
                    last = bucket
            if holders:
                anywhere += rarity
            if lexicon.stem_data[stem].flags & DIGIT and holders < count:
                missing_anywhere = missing_anywhere or holders == 0
                for j in range(count):
                    if not inside[j]:
                        missing[j] = 1
        cdef dict single = {}
        cdef double together, top = 0.0
        for i in range(count):
            best = 0.0
            for j in range(near_starts[i], near_starts[i + 1] - 1):
                value = near[j] + near[j + 1]
                if near[j] != 0.0 and value > best:
                    best = value
            if best > mass:
                best = mass
            if best > most:
                most = best
            value = _grade((held[i] + best) / 2, mass, low, span, missing[i], lack)
            single[passages[i]] = value
            if value > top:
                top = value
        together = _grade((anywhere + most) / 2, mass, low, span, missing_anywhere, lack)
        return single, (together if together > top else top) if count else 0.0


cdef inline double _grade(
    double overlap, double mass, double low, double span, bint lacks, double lack
) noexcept:
    cdef double value = (overlap / mass - low) / span
    value = 0.0 if value < 0.0 else value
    value = 1.0 if value > 1.0 else value
    return value * lack if lacks else value


cdef inline bint _holds(const vector[int]& stems, int stem) noexcept nogil:
    cdef size_t at
    for at in range(stems.size()):
        if stems[at] == stem:
            return True
    return False


cdef class PiecewiseLine:
    """A linear function of clipped features."""

    cdef vector[double] lows, highs, slopes, parts
    cdef double base

    def __cinit__(self, lows, highs, slopes, double base):
        self.lows, self.highs, self.slopes, self.base = lows, highs, slopes, base
        if not self.lows.size() == self.highs.size() == self.slopes.size():
            raise ValueError("not as many limits as slopes")

    cdef double at(self, list values) except? -1.0:
        cdef size_t i
        cdef double value
        if <size_t>len(values) != self.slopes.size():
            raise ValueError("not as many values as slopes")
        self.parts.clear()
        for i in range(self.slopes.size()):
            value = <double>values[i]
            if value < self.lows[i]:
                value = self.lows[i]
            elif value > self.highs[i]:
                value = self.highs[i]
            self.parts.push_back(value * self.slopes[i])
        return self.base + add_up(self.parts.data(), self.parts.size())


cdef struct Stump:
    int feature
    double cut
    double low
    double high


cdef class GroundingModel:
    """The fitted model of `grounding`, evaluated by `log_odds`."""

    cdef PiecewiseLine line, sentence
    cdef double share
    cdef vector[int] features
    cdef vector[double] cuts
    cdef vector[vector[Stump]] below, above
    cdef vector[double] odds, powers

    def __cinit__(
        self,
        PiecewiseLine line not None,
        PiecewiseLine sentence not None,
        double share,
        list roots not None,
    ):
        cdef Stump stump
        cdef vector[Stump] side
        cdef int size = <int>line.slopes.size()
        self.line, self.sentence, self.share = line, sentence, share
        for feature, cut, below, above in roots:
            self.features.push_back(feature)
            self.cuts.push_back(cut)
            for stumps, into_below in ((below, True), (above, False)):
                side.clear()
                for stump.feature, stump.cut, stump.low, stump.high in stumps:
                    if not (0 <= stump.feature < size and 0 <= self.features.back() < size):
                        raise ValueError("no such feature")
                    side.push_back(stump)
                if into_below:
                    self.below.push_back(side)
                else:
                    self.above.push_back(side)

    def raw(self, list values not None, list sentences not None):
        """Return half the line and half the trees, and the share of the sentences' log odds."""
        cdef double linear = self.line.at(values), grown = 0.0, worst = 0.0, one
        cdef vector[double] numbers = values
        cdef size_t i, j
        cdef vector[Stump]* side
        cdef bint far = False
        for i in range(self.features.size()):
            if numbers[self.features[i]] <= self.cuts[i]:
                side = &self.below[i]
            else:
                side = &self.above[i]
            for j in range(side[0].size()):
                if numbers[side[0][j].feature] <= side[0][j].cut:
                    grown += side[0][j].low
                else:
                    grown += side[0][j].high
        if sentences:
            self.powers.clear()
            for row in sentences:
                one = self.sentence.at(<list>row)
                one = 20.0 if one > 20.0 else -20.0 if one < -20.0 else one
                self.powers.push_back(exp(2 * one))
            worst = log(add_up(self.powers.data(), self.powers.size()) / self.powers.size()) / 2
        return (linear + grown) / 2 + self.share * worst
