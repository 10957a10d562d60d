# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=False
# distutils: language = c++
"""The text kernel of the built-in scorers: the lexical comparison of a trace over integer ids.

Sums are made in the order of the text, by the rules of the interpreter's `sum`.
"""

from cpython.dict cimport PyDict_GetItem
from cpython.long cimport PyLong_AsLong
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_KIND, PyUnicode_READ
from libc.math cimport exp, fabs, isfinite, log, log1p, sqrt
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from libcpp.vector cimport vector

import os
import sys
import threading

from cpython.unicode cimport PyUnicode_FromKindAndData
from libcpp cimport bool as truth


cdef extern from "native/text.hpp" namespace "ragmeter" nogil:
    cdef cppclass Letters:
        Letters()
        const char* data()
        size_t size()
        void push_back(Py_UCS4)
    cdef cppclass Text:
        Text()
        Text(const void*, int, Py_ssize_t)


cdef extern from "native/english.hpp" namespace "ragmeter" nogil:
    cdef cppclass English:
        void add_stop_word(const Letters&) except +
        void add_suffix(const Letters&, int) except +


cdef extern from "native/pattern.hpp" namespace "ragmeter" nogil:
    cdef cppclass Match:
        truth has(int)
        Py_ssize_t start(int)
        Py_ssize_t end(int)
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
        int adopt(const Text&, const vector[Text]&, const Text&, vector[Change]&) except +


cdef English english
cdef Notation* notation = new Notation(english)


cdef Letters _letters(str text):
    cdef Letters out
    cdef Py_UCS4 sign
    for sign in text:
        out.push_back(sign)
    return out


cdef Text _text(str text) except *:
    """Return the buffer of a string, which lives as long as the string does."""
    return Text(PyUnicode_DATA(text), PyUnicode_KIND(text), len(text))


cdef str _string(const Letters& text):
    return PyUnicode_FromKindAndData(4, (<Letters&>text).data(), (<Letters&>text).size())


def read_english(stop_words, suffixes):
    """Take the stop words, and the suffixes with the letters that a stem keeps at least."""
    for word in stop_words:
        english.add_stop_word(_letters(word))
    for suffix, keep in suffixes:
        english.add_suffix(_letters(suffix), keep)


cdef class Found:
    """A match of a `Pattern`, with the methods that one of `re` has."""

    cdef str text
    cdef CompiledPattern* pattern
    cdef Pattern owner
    cdef Match match

    def span(self, int group=0):
        """Return where a group stands, (-1, -1) if it matched nothing."""
        if not self.match.has(self._check(group)):
            return -1, -1
        return self.match.start(group), self.match.end(group)

    def start(self, int group=0):
        """Return where a group begins, -1 if it matched nothing."""
        return self.match.start(group) if self.match.has(self._check(group)) else -1

    def end(self, int group=0):
        """Return where a group ends, -1 if it matched nothing."""
        return self.match.end(group) if self.match.has(self._check(group)) else -1

    def group(self):
        """Return all that was matched."""
        return self.text[self.match.start(0) : self.match.end(0)]

    def groups(self):
        """Return what all groups have matched."""
        return tuple([self[group] for group in range(1, self.pattern.groups() + 1)])

    def __getitem__(self, group):
        cdef int number
        if isinstance(group, str):
            number = self.pattern.group(group.encode())
        else:
            number = self._check(group)
        if not self.match.has(number):
            return None
        return self.text[self.match.start(number) : self.match.end(number)]

    cdef int _check(self, int group) except -1:
        if not 0 <= group <= self.pattern.groups():
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
        cdef Found found = Found.__new__(Found)
        cdef Text data = _text(text)
        cdef bint has
        at = at if at > 0 else 0
        with nogil:
            if here:
                has = self.pattern.match(data, at, found.match, end)
            else:
                has = self.pattern.search(data, at, found.match, end)
        if not has:
            return None
        found.text, found.pattern, found.owner = text, self.pattern, self
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
            start = found.match.end(0) + (found.match.end(0) == found.match.start(0))
        return out

    def fullmatch(self, str text not None, Py_ssize_t start=0, Py_ssize_t end=-1):
        """Return the match of [start, end), or None."""
        if self.whole is NULL:
            self.whole = new CompiledPattern(_letters(f"(?:{self.source})\\Z"), self.flags)
        cdef Found found = Found.__new__(Found)
        if not self.whole.match(_text(text), start, found.match, end):
            return None
        found.text, found.pattern, found.owner = text, self.pattern, self
        return found

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
            pieces.append(text[at : found.match.start(0)])
            pieces.append(replace if fixed else replace(found))
            at = found.match.end(0)
            count -= 1
            if count == 0:
                break
        if not pieces:
            return text
        pieces.append(text[at:])
        return "".join(pieces)


IGNORE_CASE, MULTI_LINE, DOT_ALL = 1, 2, 4

cdef PlainSigns plain_signs


def read_plain_signs(str signs not None):
    """Take the characters that stay as they are in a plain text, beside any other."""
    cdef Py_UCS4 sign
    for sign in signs:
        plain_signs.add(sign)


def judge_plain(str text not None):
    """Return 1 for a plain text, 0 for another, -1 if characters that are not known decide it."""
    cdef Text data = _text(text)
    cdef int found
    with nogil:
        found = plain_signs.judge(data)
    return found


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


def adopt_notation(str text not None, passages, str query not None):
    """Find what to replace in a text so that it writes its values as passages or query do.

    Returns:
        The changes as (start, end, text), and how many values stand in place of another one.
    """
    cdef vector[Text] pages
    cdef vector[Change] changes
    cdef Text data = _text(text), asked = _text(query)
    cdef int replaced
    cdef size_t at
    for passage in passages:
        pages.push_back(_text(<str?>passage))
    with nogil:
        replaced = notation.adopt(data, pages, asked, changes)
    out = []
    for at in range(changes.size()):
        out.append((changes[at].start, changes[at].end, _string(changes[at].text)))
    return out, replaced

# From 3.12 on the interpreter's sum of floats is compensated (Neumaier).
cdef bint COMPENSATED = sys.version_info >= (3, 12)

cdef enum StemFlag:
    DIGIT_FIRST = 1  # a number, as it is written: its first character is at most "9"
    COUNT = 2  # "seven", "dozen"
    TIME = 4
    META = 8  # words about the passages themselves
    SAY = 16
    TEXT = 32  # META without those that say nothing of a text by themselves
    NEGATION = 64
    DIGIT = 128  # a digit first, of any script
    DECIMAL = 256

cdef enum FormFlag:
    HEDGE = 1
    NEGATES = 2
    DENIES = 4  # in a record

cdef enum:
    HALF_COVERED = 8  # content stems of half a stretch; a stretch of 16 is a long sentence
    HALF_PROXIMITY = 8  # content stems of half a stretch; a stretch is about two sentences
    HALF_CLAUSE = 4  # content stems of half a stretch that affirms what an answer denies
    NEAR = 3  # content stems: within a clause
    SCOPE = 6  # words that a negation may deny, stop words included
    MAX_POSITIONS = 40  # by stem: a word as frequent as that locates nothing
    MAX_NEGATIONS = 40  # each negation of an answer meets each window of its passages
    MAX_WINDOWS = 400
    MEAN_CHARS = 20  # of a word: a full lexicon of longer ones would take more memory

cdef long generations = 0  # of all lexicons: the ids of one mean nothing to another
# Of the idf of a passage's negation, and of all: from here on a sentence restates it.
cdef double RESTATED = 0.3
cdef double LEAST_MASS = 5.0
cdef double COMMON = 5.0  # idf: a novel stem more common than this may be mere wording


cdef double add_up(const double* values, size_t count) noexcept nogil:
    """Return what the interpreter's `sum` of the values returns."""
    cdef double total = 0.0, lost = 0.0, value, new
    cdef size_t at
    if not COMPENSATED:
        for at in range(count):
            total += values[at]
        return total
    for at in range(count):
        value = values[at]
        new = total + value
        if fabs(total) >= fabs(value):
            lost += (total - new) + value
        else:
            lost += (value - new) + total
        total = new
    if lost != 0.0 and isfinite(lost):
        total += lost
    return total


cdef struct ExactSum:
    double total
    double lost


cdef inline void add_exactly(ExactSum* partial, double value) noexcept nogil:
    """Add a value; `total` + `lost` is `math.fsum` for sums as short as a clause."""
    cdef double new = partial.total + value
    cdef double back = new - partial.total
    partial.lost += (partial.total - (new - back)) + (value - back)
    partial.total = new


cdef struct Form:  # 16 bytes: what a word needs lies side by side, for the cache of the processor
    int stem  # 0 of a stop word
    int flags
    long seen


cdef struct Stem:
    double rarity
    long wanted  # the trace that wants its positions, and `local`, its index there
    long seen  # the trace whose passages have it
    long marked
    int local
    int flags
    int prefix
    int numeral  # a stem of the same number, or 0


cdef extern from *:
    """
    static inline uint64_t fold(uint64_t one, uint64_t other) {
        unsigned __int128 product = (unsigned __int128)one * other;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    """
    uint64_t fold(uint64_t one, uint64_t other) noexcept nogil


cdef struct Entry:
    uint64_t hash
    uint32_t begin, size  # the word's bytes in `letters`
    int form  # -1: the entry is free


cdef class WordTable:
    """Numbers words by their bytes, in UTF-8.

    The hash has a secret, so that nobody can send words that all meet in one place.
    """

    cdef vector[Entry] entries  # a power of two, at most half of them in use
    cdef vector[char] letters
    cdef size_t count
    cdef uint64_t secret, seed

    def __cinit__(self):
        self.secret = int.from_bytes(os.urandom(8), "little") | 1
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.clear()

    cdef int clear(self) except -1:
        cdef Entry free
        free.hash = free.begin = free.size = 0
        free.form = -1
        self.entries.assign(1 << 12, free)
        self.letters.clear()
        self.count = 0
        return 0

    cdef uint64_t hash(self, const char* word, size_t size) noexcept nogil:
        cdef uint64_t value = self.seed ^ size, part
        while size > 8:
            memcpy(&part, word, 8)
            value = fold(value ^ part, self.secret)
            word += 8
            size -= 8
        part = 0
        memcpy(&part, word, size)
        return fold(fold(value ^ part, self.secret), self.secret)

    cdef Entry* find(self, const char* word, size_t size) noexcept nogil:
        """Return the entry of a word; one that is free where the word is new."""
        cdef uint64_t value = self.hash(word, size)
        cdef size_t mask = self.entries.size() - 1, at = value & mask
        cdef Entry* entry
        while True:
            entry = &self.entries[at]
            if entry.form < 0:
                entry.hash = value
                return entry
            if (
                entry.hash == value
                and entry.size == size
                and memcmp(self.letters.data() + entry.begin, word, size) == 0
            ):
                return entry
            at = (at + 1) & mask

    cdef int add(self, const char* word, size_t size, int form) except -1:
        # memory may be short: nothing changes before there is enough
        cdef vector[Entry] wider
        cdef Entry free
        cdef size_t at, place, mask, begin = self.letters.size()
        if 2 * (self.count + 1) > self.entries.size():
            free.hash = free.begin = free.size = 0
            free.form = -1
            wider.assign(2 * self.entries.size(), free)
            mask = wider.size() - 1
            for at in range(self.entries.size()):
                if self.entries[at].form >= 0:
                    place = self.entries[at].hash & mask
                    while wider[place].form >= 0:
                        place = (place + 1) & mask
                    wider[place] = self.entries[at]
            self.entries.swap(wider)
        self.letters.insert(self.letters.end(), word, word + size)
        cdef Entry* entry = self.find(word, size)
        entry.begin, entry.size, entry.form = <uint32_t>begin, <uint32_t>size, form
        self.count += 1
        return 0


# Whether a byte of ASCII belongs to a word.
cdef bint[128] PLAIN
for _code in range(128):
    PLAIN[_code] = chr(_code).isalnum()


cdef str _lower(str text):
    """Return a text in lower case; None if a script has no spaces, or if its length changes."""
    cdef str lower = text.lower()
    cdef Py_UCS4 sign
    if len(lower) != len(text):
        return None
    if not lower.isascii():
        for sign in lower:
            if sign >= 0xE00 and (
                sign < 0xF00
                or 0x1000 <= sign < 0x10A0
                or 0x1780 <= sign < 0x1800
                or 0x3040 <= sign < 0x3100
                or 0x3400 <= sign < 0xA000
                or 0xF900 <= sign < 0xFB00
            ):
                return None
    return lower


cdef class PassageIds:
    """The ids of one passage; they hold for one generation of the lexicon."""

    cdef long generation
    cdef vector[int] stems  # ends with 0
    cdef vector[int] forms
    cdef vector[int] heads  # of each negation: the first stem after it, and all near it
    cdef vector[int] near
    cdef vector[size_t] near_ends

    @property
    def has_text(self):
        """Whether the passage has a content stem."""
        return self.stems.size() > 1


cdef class Lexicon:
    """Numbers words and stems and knows of each what the metrics ask.

    Args:
        tokenize: Splits a text into words; it is asked for scripts that are written without spaces.
        content_stem: Maps a word to its stem, a stop word to "".
        idf: The background rarity by stem.
        describe: Maps a stem to the sum of its `StemFlag`s.
        numerals: Pairs of stems that name the same number, in both directions.
        hedges: Words that hedge.
        negations: Words that deny.
        denials: Those that deny in a record.
        prefix: Letters that related stems share.
        limit: How many words and stems it holds; beyond, it begins anew.
    """

    cdef object tokenize, content_stem, idf, describe
    cdef dict numerals, stems, prefixes
    cdef WordTable forms
    cdef vector[char] word
    cdef frozenset hedges, negations, denials
    cdef int letters
    cdef long generation, epoch
    cdef size_t chars, limit
    cdef list texts  # by stem
    cdef vector[Form] form_data
    cdef vector[Stem] stem_data
    cdef long mark
    cdef vector[long] prefix_seen  # by prefix
    cdef Comparison current

    def __cinit__(
        self,
        tokenize,
        content_stem,
        idf,
        describe,
        numerals,
        hedges,
        negations,
        denials,
        prefix,
        limit,
    ):
        self.tokenize = tokenize
        self.content_stem, self.idf, self.describe = content_stem, idf, describe
        self.numerals, self.hedges, self.negations = numerals, hedges, negations
        self.denials = denials
        self.letters, self.limit = prefix, limit
        self.epoch = self.mark = 0
        self.forms = WordTable()
        self._begin()

    cdef int _begin(self) except -1:
        global generations
        self.generation = 0  # until all is there
        self.chars = 0
        self.forms.clear()
        self.stems, self.prefixes, self.texts = {}, {}, []
        self.current = None
        self.form_data.clear()
        self.stem_data.clear()
        self.prefix_seen.clear()
        self._new_stem("")  # 0 ends passages and stands for stop words
        self.stem_data[0].rarity = 0.0
        cdef int one, other
        for stem, numeral in self.numerals.items():
            one, other = self.stem(stem), self.stem(numeral)
            self.stem_data[one].numeral = other
        generations += 1
        self.generation = generations
        return 0

    cdef int _new_stem(self, str stem) except -1:
        # what may fail or be interrupted comes first, and `stems` last: it says what there is
        cdef int number, prefix = -1
        cdef Stem data
        data.wanted = data.seen = data.marked = 0
        data.local = data.numeral = 0
        data.rarity = self.idf[stem]
        data.flags = self.describe(stem) if stem else 0
        if len(stem) >= self.letters:
            begin = stem[: self.letters]
            known = self.prefixes.get(begin)
            if known is None:
                known = len(self.prefixes)
                self.prefix_seen.resize(known + 1)
                self.prefixes[begin] = known
            prefix = known
        data.prefix = prefix
        number = <int>len(self.stems)
        self.stem_data.resize(number)
        self.stem_data.push_back(data)
        del self.texts[number:]
        self.texts.append(stem)
        self.stems[stem] = number
        self.chars += len(stem)
        return number

    cdef int stem(self, str stem) except -1:
        cdef PyObject* known = PyDict_GetItem(self.stems, stem)
        if known is not NULL:
            return PyLong_AsLong(<object>known)
        return self._new_stem(stem)

    cdef int form(self, const char* word, size_t size) except -1:
        cdef int known = self.forms.find(word, size).form
        return known if known >= 0 else self._new_form(word, size)

    cdef int _new_form(self, const char* letters, size_t size) except -1:
        cdef str word = letters[:size].decode("utf-8", "surrogatepass")
        cdef int number
        cdef Form data
        self.chars += size
        data.flags, data.seen = 0, 0
        if word in self.hedges:
            data.flags |= HEDGE
        if word in self.negations:
            data.flags |= NEGATES
        if word in self.denials:
            data.flags |= DENIES
        data.stem = self.stem(self.content_stem(word))
        number = <int>self.form_data.size()
        self.form_data.push_back(data)
        self.forms.add(letters, size, number)
        return number

    cdef int read_words(self, list words, vector[int]& forms) except -1:
        """Append the forms of words."""
        cdef bytes letters
        for word in words:
            letters = (<str?>word).encode("utf-8", "surrogatepass")
            forms.push_back(self.form(letters, len(letters)))
        return 0

    cdef int read_text(
        self, str lower, Py_ssize_t begin, Py_ssize_t end, vector[int]& forms
    ) except -1:
        """Append the forms of the words of [begin, end) of a text in lower case."""
        cdef Py_ssize_t at
        cdef uint32_t sign
        cdef int kind = PyUnicode_KIND(lower)
        cdef void* data = PyUnicode_DATA(lower)
        cdef size_t size = 0
        cdef char* word
        if end > len(lower):
            end = len(lower)
        if not 0 <= begin <= end:
            raise IndexError("not a part of the text")
        if self.word.size() < <size_t>(4 * (end - begin)):
            self.word.resize(4 * (end - begin))
        word = self.word.data()
        for at in range(begin, end + 1):
            sign = PyUnicode_READ(kind, data, at) if at < end else 0
            if sign < 128:
                if PLAIN[sign]:
                    word[size] = <char>sign
                    size += 1
                    continue
            elif (<Py_UCS4>sign).isalnum():
                if sign >= 0x10000:
                    word[size] = <char>(0xF0 | sign >> 18)
                    word[size + 1] = <char>(0x80 | sign >> 12 & 63)
                    size += 2
                elif sign >= 0x800:
                    word[size] = <char>(0xE0 | sign >> 12)
                    size += 1
                if sign >= 0x800:
                    word[size] = <char>(0x80 | sign >> 6 & 63)
                else:
                    word[size] = <char>(0xC0 | sign >> 6)
                word[size + 1] = <char>(0x80 | sign & 63)
                size += 2
                continue
            if size:
                forms.push_back(self.form(word, size))
                size = 0
        return 0

    def read_passage(self, str text not None, bint structured):
        """Return the ids of a passage.

        Args:
            text: Its text.
            structured: Whether it is a record.
        """
        cdef PassageIds out = PassageIds.__new__(PassageIds)
        cdef vector[int] forms
        cdef size_t at, i, size, high
        cdef int form, stem, head, denial = DENIES if structured else NEGATES
        out.generation = self.generation
        lower = _lower(text)
        if lower is None:
            self.read_words(self.tokenize(text), forms)
        else:
            self.read_text(lower, 0, len(lower), forms)
        size = forms.size()
        self.mark += 1
        for at in range(size):
            form = forms[at]
            stem = self.form_data[form].stem
            if stem:
                out.stems.push_back(stem)
            if self.form_data[form].seen != self.mark:
                self.form_data[form].seen = self.mark
                out.forms.push_back(form)
        out.stems.push_back(0)
        for at in range(size):
            if not self.form_data[forms[at]].flags & denial:
                continue
            self.mark += 1
            head = 0
            high = at + SCOPE + 1 if at + SCOPE + 1 < size else size
            for i in range(at - SCOPE if at > SCOPE else 0, high):
                stem = self.form_data[forms[i]].stem
                if stem == 0 or i == at:
                    continue
                if i > at and head == 0:
                    head = stem
                if self.stem_data[stem].marked != self.mark:
                    self.stem_data[stem].marked = self.mark
                    out.near.push_back(stem)
            out.heads.push_back(head)
            out.near_ends.push_back(out.near.size())
        return out

    def is_current(self, PassageIds ids):
        """Return whether the ids still hold."""
        return ids is not None and ids.generation == self.generation

    def make_room(self):
        """Begin anew where the lexicon is full; call it between two traces."""
        if (
            self.generation == 0
            or self.form_data.size() > self.limit
            or self.stem_data.size() > self.limit
            or self.chars > self.limit * MEAN_CHARS
        ):
            self._begin()


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
        answer: The text of the answer.
        sentences: Where each sentence begins and ends in it.
        query: The content stems of the query in order.
    """

    cdef Lexicon lexicon
    cdef long epoch
    cdef readonly bint structured
    cdef vector[int] stream, owner
    cdef vector[size_t] starts
    cdef list passages
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

    def __cinit__(
        self,
        Lexicon lexicon not None,
        list passages not None,
        str answer not None,
        list sentences not None,
        list query not None,
        bint structured,
    ):
        cdef PassageIds ids
        cdef int number = 0, stem, form
        cdef size_t at, begin, local
        cdef int* stem_data
        self.lexicon, self.passages, self.structured = lexicon, passages, structured
        self.worst = -1
        # from here on the stems are those of this trace, even if an error ends it
        lexicon.current = None
        if lexicon.generation == 0:
            raise RuntimeError("the lexicon is not complete")
        for item in passages:
            ids = <PassageIds?>item
            if ids.generation != lexicon.generation:
                raise RuntimeError("the lexicon has begun anew since")
            self.starts.push_back(self.stream.size())
            self.stream.insert(self.stream.end(), ids.stems.begin(), ids.stems.end())
            self.owner.resize(self.stream.size(), number)
            number += 1
        lexicon.epoch += 1
        self.epoch = lexicon.epoch
        cdef vector[double] rarities
        cdef str lower = _lower(answer)
        for first, last in sentences:
            rarities.clear()
            at = self.forms.size()
            if lower is None:
                lexicon.read_words(lexicon.tokenize(answer[first:last]), self.forms)
            else:
                lexicon.read_text(lower, first, last, self.forms)
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
        for text in query:
            stem = lexicon.stem(<str?>text)
            if stem == 0:
                raise ValueError("an empty stem")
            self.query.push_back(stem)
            self._want(stem)
        self.in_answer.resize(self.words.size(), 0)
        self.in_query.resize(self.words.size(), 0)
        for at in range(self.query.size()):
            self.in_query[lexicon.stem_data[self.query[at]].local] = 1
        self.near_query = self.in_query
        self._locate()
        lexicon.current = self

    @property
    def has_content(self):
        """Whether a sentence has a content stem."""
        return not self.content.empty()

    cdef int _want(self, int stem) except -1:
        if self.lexicon.stem_data[stem].wanted != self.epoch:
            self.lexicon.stem_data[stem].wanted = self.epoch
            self.lexicon.stem_data[stem].local = <int>self.words.size()
            self.words.push_back(stem)
        return 0

    cdef int _locate(self) except -1:
        """Find the positions of all wanted stems, and mark all stems of the passages as seen."""
        cdef Lexicon lexicon = self.lexicon
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
        if self.lexicon.current is not self:
            raise RuntimeError("another trace has been read since")
        return 0

    cdef inline size_t _count(self, int local) noexcept:
        """The number of positions that count for answers: the first 40."""
        cdef size_t count = self.first[local + 1] - self.first[local]
        return count if count < MAX_POSITIONS else MAX_POSITIONS

    cdef inline size_t _stem_count(self, int stem) noexcept:
        if self.lexicon.stem_data[stem].wanted != self.epoch:
            return 0
        return self._count(self.lexicon.stem_data[stem].local)

    def __contains__(self, str stem):
        """Whether a passage has the stem."""
        self._check()
        known = self.lexicon.stems.get(stem)
        return known is not None and self.lexicon.stem_data[<int>known].seen == self.epoch

    # -- relevance

    def grade_passages(self, double saturation, double length, double low, double span, weights):
        """Grade each passage from 0 to 3; None if it has no text. See `relevance.grade_passages`."""
        self._check()
        cdef Lexicon lexicon = self.lexicon
        cdef size_t passages = self.starts.size(), at, p, size, begin, end, half, last_half, i
        cdef double of_coverage, of_stretch, of_frequency, of_pairs, average, weight, stretch, mixed
        of_coverage, of_stretch, of_frequency, of_pairs = weights
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
            norms.push_back(saturation * (1 - length + length * sizes[p] / average))
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
        cdef dict followers = {}
        cdef vector[int] met  # by local index: the last passage where it follows, -1, -2 of others
        cdef size_t pairs = 0
        for at in range(1, self.query.size()):
            followers.setdefault(self.query[at - 1], set()).add(self.query[at])
        met.assign(self.words.size(), -2)
        for first, others in followers.items():
            pairs += len(others)
            for other in others:
                met[lexicon.stem_data[<int>other].local] = -1
            local = lexicon.stem_data[<int>first].local
            for at in range(self.first[local], self.first[local + 1]):
                passage = self.owner[self.places[at]]
                stem = self.stream[self.places[at] + 1]
                if lexicon.stem_data[stem].wanted != self.epoch:
                    continue
                second = lexicon.stem_data[stem].local
                if met[second] != -2 and met[second] != passage:
                    met[second] = passage
                    followed[passage] += 1
            for other in others:
                met[lexicon.stem_data[<int>other].local] = -2
        cdef list out = []
        for p in range(passages):
            stretch = 0.0
            touched = coverage[p] != 0.0
            for at in range(near_starts[p], near_starts[p] + sizes[p] // HALF_PROXIMITY + 1):
                weight = near[at] + near[at + 1]
                if near[at] != 0.0 and weight > stretch:
                    stretch = weight
            if not touched:
                out.append(0.0 if sizes[p] > 0 else None)
                continue
            if stretch > total:
                stretch = total
            weight = frequency[p] / total * (saturation + 1) / 1.5
            mixed = (
                of_coverage * coverage[p] / total
                + of_stretch * stretch / total
                + of_frequency * (weight if weight < 1.0 else 1.0)
                + of_pairs * followed[p] / <double>(pairs if pairs else 1)
            )
            weight = (mixed - low) / span
            weight = 0.0 if weight < 0.0 else weight
            out.append(3.0 * (1.0 if weight > 1.0 else weight))
        return out

    # -- coverage

    cdef int _measure_coverage(self) except -1:
        cdef Lexicon lexicon = self.lexicon
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
        cdef Lexicon lexicon = self.lexicon
        cdef size_t at, i, size = self.ends.size()
        cdef int stem, local, form
        cdef long hedges = 0, forms = 0, new_forms = 0, common = 0
        cdef PassageIds ids
        cdef vector[double] values
        if self.structured:
            for local in range(<int>self.answer_size):
                if self._count(local) == 0 and self._has_relative(self.words[local]):
                    self.near_query[local] = 1
        self._measure_coverage()
        cdef list novel_names = []
        for name in names:
            known = lexicon.stems.get(name)
            if known is not None and lexicon.stem_data[<int>known].wanted == self.epoch:
                local = lexicon.stem_data[<int>known].local
                if self._count(local) or self.near_query[local]:
                    continue
            novel_names.append(name)
        cdef double mean_place = add_up(self.by_place.data(), self.by_place.size()) / (
            <double>self.by_place.size() if self.by_place.size() else 1.0
        )
        for at in range(self.by_place.size()):
            values.push_back((self.by_place[at] - mean_place) * (self.by_place[at] - mean_place))
        cdef double spread = add_up(values.data(), values.size()) / (
            <double>values.size() if values.size() else 1.0
        )
        cdef list by_words = sorted(self.by_words)
        values = by_words
        cdef double all_words = add_up(values.data(), values.size())
        cdef double two_words = add_up(values.data(), 2 if values.size() > 2 else values.size())
        cdef long word_sentences = len(by_words)
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
        for item in self.passages:
            ids = <PassageIds>item
            for at in range(ids.forms.size()):
                lexicon.form_data[ids.forms[at]].seen = lexicon.mark
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
        cdef list out = [
            1 - (self.matched + self.in_query_mass) / mass if mass != 0.0 else 0.0,
            1 - self.matched / mass if mass != 0.0 else 0.0,
            1 - <double>by_words[0] if word_sentences else 0.0,
            1 - two_words / (2 if word_sentences > 2 else word_sentences) if word_sentences else 0.0,
            1 - all_words / word_sentences if word_sentences else 0.0,
            1 - least_place if self.by_place.size() else 0.0,
            1 - mean_place if self.by_place.size() else 0.0,
            sqrt(spread),
            log_novel,
            log1p(add_up(self.novel.data(), self.novel.size())),
            self.novel_count / content,
            common / content,
            1 - self.pairs_copied / <double>(self.pairs if self.pairs > 1 else 1),
            1 - least_pairs if self.by_pairs.size() else 0.0,
            -log1p(self.density / stems),
            -self.copied5 / stems,
            -self.copied3 / stems,
            log1p(<double>len(novel_names)),
            len(novel_names) / <double>(len(names) + 2),
            log1p(<double>novel_numbers),
            novel_numbers / <double>(number_count + 1),
            log1p(<double>number_count),
            log1p(<double>len(names)),
            log1p(<double>words),
            log_claims,
            self.in_order / <double>self.follows if self.follows else 0.5,
            hedges / few_words,
            log1p(<double>hedges),
            about_passages / few_words,
            1.0 if self.structured else 0.0,
            query_missing / query_mass if query_mass > 0 else 0.0,
            query_repeated / query_mass if query_mass > 0 else 0.0,
            words / sentences / 30,
            log_novel - log_claims,
            log1p(<double>record[0]),
            log1p(<double>record[1]),
            log1p(<double>record[2]),
            log1p(<double>record[3]),
            log1p(<double>record[4]),
            new_forms / <double>(forms if forms > 1 else 1),
        ]
        cdef list rows = [] if self.structured else self._sentence_rows(names)
        cdef double strayed = 0.0
        values.clear()
        for row in rows:
            values.push_back(<double>(<list>row)[9] + <double>(<list>row)[10])
        strayed = add_up(values.data(), values.size())
        refuted = log1p(refuted)
        contradictions = [
            0.0 if self.structured else refuted,
            refuted if self.structured else 0.0,
            log1p(strayed),
            log1p(lost),
            log1p(<double>self._count_misplaced()),
        ]
        return out, rows, contradictions, novel_names

    cdef bint _has_relative(self, int stem):
        """Whether a passage has the stem in another form, or as a number in words or digits."""
        cdef Lexicon lexicon = self.lexicon
        cdef int prefix = lexicon.stem_data[stem].prefix, numeral = lexicon.stem_data[stem].numeral
        if prefix >= 0 and lexicon.prefix_seen[prefix] == self.epoch:
            return True
        return numeral > 0 and lexicon.stem_data[numeral].seen == self.epoch

    cdef bint _is_figure(self, int stem):
        return (self.lexicon.stem_data[stem].flags & (DIGIT_FIRST | COUNT)) != 0

    cdef list _sentence_rows(self, list names):
        cdef Lexicon lexicon = self.lexicon
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
        for name in names:
            known = lexicon.stems.get(name)
            if known is not None and lexicon.stem_data[<int>known].wanted == self.epoch:
                local = lexicon.stem_data[<int>known].local
                if local < <int>self.answer_size:
                    named[local] = 1
        cdef list rows = []
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
            rows.append([
                log1p(new_mass),
                log1p(<double>new.size()),
                new_mass / mass if mass != 0.0 else 0.0,
                log1p(<double>(self.ends[sentence] - stems_begin)),
                log1p(<double>self.copied[sentence]),
                1 - self.support[sentence],
                sentence / <double>size,
                0.0 if sentence else 1.0,
                <double>name_count,
                <double>missing,
                strayed,
                <double>time_count,
            ])
            begin, stems_begin = self.content_ends[sentence], self.ends[sentence]
        return rows

    cdef long _weigh_numbers(
        self, size_t begin, size_t end, vector[char]& novel, double* strayed
    ) except -1:
        """Count a sentence's numbers that no passage has; add up how far its others stray."""
        cdef Lexicon lexicon = self.lexicon
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

    cdef long _count_misplaced(self) except -1:
        """Count the numbers whose neighbours never have them beside them in a passage, but others."""
        cdef Lexicon lexicon = self.lexicon
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

    cdef double _mass(self, vector[int]& stems) noexcept:
        cdef ExactSum partial
        cdef size_t at
        partial.total = partial.lost = 0.0
        for at in range(stems.size()):
            add_exactly(&partial, self.lexicon.stem_data[stems[at]].rarity)
        return partial.total + partial.lost

    cdef long _weigh_negations(self, double* refuted, double* lost) except -1:
        """Compare what answer and passages deny; all shares are of idf.

        `refuted` gains the shares of words near the answer's negations that are near none of a
        passage, where one stretch of passage has more of them; `lost` the shares of passages'
        negations that a sentence has which denies them nowhere. Returned is the number of the
        answer's negations about the passages ("the article does not mention").
        """
        cdef Lexicon lexicon = self.lexicon
        cdef vector[vector[int]] denied, windows, lost_words
        cdef vector[int] heads, both, shared, kept_best
        cdef vector[int] none
        cdef size_t at, i, j, low, high, words = self.forms.size(), sentence, begin, negation
        cdef int stem
        cdef long about_passages = 0
        cdef bint says, of_text, first, fits
        cdef double mass, said, kept, value, whole, most
        cdef PassageIds ids
        for item in self.passages:
            ids = <PassageIds>item
            begin = 0
            for at in range(ids.heads.size()):
                if windows.size() == MAX_WINDOWS:
                    break
                heads.push_back(ids.heads[at])
                windows.push_back(none)
                for i in range(begin, ids.near_ends[at]):
                    windows.back().push_back(ids.near[i])
                begin = ids.near_ends[at]
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

    cdef bint _in_answer(self, int stem) noexcept:
        return (
            self.lexicon.stem_data[stem].wanted == self.epoch
            and <size_t>self.lexicon.stem_data[stem].local < self.answer_size
        )

    cdef double _best_stretch(self, vector[int]& stems) except -1:
        cdef Lexicon lexicon = self.lexicon
        cdef dict masses = {}
        cdef size_t at
        cdef int local, stem, half, last
        cdef double rarity, most = 0.0, value
        texts = []
        for at in range(stems.size()):
            if self._stem_count(stems[at]):
                texts.append((lexicon.texts[stems[at]], stems[at]))
        texts.sort()
        for _, number in texts:
            stem = number
            local, rarity, last = lexicon.stem_data[stem].local, lexicon.stem_data[stem].rarity, -1
            for at in range(self.first[local], self.first[local] + self._count(local)):
                half = self.places[at] // HALF_CLAUSE
                if half != last:
                    masses[half] = <double>masses.get(half, 0.0) + rarity
                    last = half
        for found, mass in masses.items():
            value = <double>mass + <double>masses.get(<int>found + 1, 0.0)
            if value > most:
                most = value
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
        cdef Lexicon lexicon = self.lexicon
        cdef size_t at, i, begin
        cdef int half, best = -1, local, position
        cdef double most = 0.0, value
        cdef set equal = set()
        cdef dict masses = {}
        for i in range(self.worst_halves.size()):
            masses[self.worst_halves[i]] = self.worst_masses[i]
        stretches = [
            (half_of, <double>mass + <double>masses.get(<int>half_of + 1, 0.0))
            for half_of, mass in masses.items()
        ]
        most = max([mass for _, mass in stretches], default=0.0)
        if most == 0.0:
            return self.worst, self.support[self.worst], None
        candidates = [half_of for half_of, mass in stretches if mass == most]
        position = <int>candidates[0] * HALF_COVERED
        if len(candidates) > 1:
            begin = self.content_ends[self.worst - 1] if self.worst else 0
            position = self._first_place_in(begin, set(candidates), position)
        return self.worst, self.support[self.worst], self.owner[position]

    cdef int _first_place_in(self, size_t begin, set halves, int fallback) except -1:
        cdef size_t i, at
        cdef int local, half
        for i in range(begin, self.content_ends[self.worst]):
            local = self.lexicon.stem_data[self.content[i]].local
            for at in range(self.first[local], self.first[local] + self._count(local)):
                half = self.places[at] // HALF_COVERED
                if half in halves:
                    return half * HALF_COVERED
        return fallback

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
        cdef Lexicon lexicon = self.lexicon
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


cdef inline bint _holds(vector[int]& stems, int stem) noexcept:
    cdef size_t at
    for at in range(stems.size()):
        if stems[at] == stem:
            return True
    return False


def find_names(str text not None):
    r"""Return the matches of `[A-Z](?<![\w'’].)\w+` and where they begin."""
    cdef Py_ssize_t at = 0, end, size = len(text)
    cdef Py_UCS4 sign, before = 0
    cdef list out = []
    while at < size:
        sign = text[at]
        if not (c"A" <= sign <= c"Z") or before == c"'" or before == 0x2019 or _in_word(before):
            before = sign
            at += 1
            continue
        end = at + 1
        while end < size and _in_word(text[end]):
            end += 1
        if end > at + 1:
            out.append((at, text[at:end]))
        before = text[end - 1]
        at = end
    return out


cdef inline bint _in_word(Py_UCS4 sign) noexcept:
    return sign == c"_" or (sign != 0 and sign.isalnum())


def find_sentence_spans(
    str text not None, bint ascii, frozenset short_sentence, search_abbreviation, Py_ssize_t limit
):
    """Return sentences and list items; see `sentences.find_sentence_spans`."""
    cdef Py_ssize_t start = 0, size = len(text), at = 0, end, first, last
    cdef Py_UCS4 sign, before
    cdef list spans = []
    while at < size:
        sign = text[at]
        if not (
            sign == c"." or sign == c"!" or sign == c"?" or sign == c"\n"
            or sign == 0x3002 or sign == 0xFF01 or sign == 0xFF1F
        ):
            at += 1
            continue
        end = _end_of_break(text, at + 1, size, ascii)
        if sign == c"\n":
            last = at + 1
        else:
            last = end
            if sign == c"." or sign == c"!" or sign == c"?":
                if end < size and not (<Py_UCS4>text[end]).isspace():
                    at = end
                    continue
                if sign == c"." and end == at + 1:
                    before = text[at - 1 if at else size - 1]
                    if (
                        not before.islower() or text[max(0, at - 2) : at] in short_sentence
                    ) and search_abbreviation(text[max(start, at - 8) : end]):
                        at = end
                        continue
        at = end
        end = last
        first = start
        while first < end and (<Py_UCS4>text[first]).isspace():
            first += 1
        start = end
        if first < end:
            while (<Py_UCS4>text[end - 1]).isspace():
                end -= 1
            spans.append((first, end))
        if len(spans) >= limit:
            return spans
    first, end = start, size
    while first < end and (<Py_UCS4>text[first]).isspace():
        first += 1
    if first < end:
        while (<Py_UCS4>text[end - 1]).isspace():
            end -= 1
        spans.append((first, end))
    return spans


cdef Py_ssize_t _end_of_break(str text, Py_ssize_t at, Py_ssize_t size, bint ascii) noexcept:
    """Return where closing quotes and citation markers after a sentence end."""
    cdef Py_ssize_t place, inside
    cdef Py_UCS4 sign
    cdef int count = 0, marks
    while count < 3 and at < size:
        sign = text[at]
        if not (
            sign == c'"' or sign == c"'" or sign == c")" or sign == c"]"
            or (not ascii and (sign == 0x201D or sign == 0x2019))
        ):
            break
        at += 1
        count += 1
    for marks in range(5):
        place = at
        if place < size and (<Py_UCS4>text[place]).isspace():
            place += 1
        count = 0
        while count < 3 and place < size and text[place] == c" ":
            place += 1
            count += 1
        if place >= size:
            break
        sign = text[place]
        if not (sign == c"[" or (not ascii and sign == 0x3010)):
            break
        place += 1
        inside = place
        while place < size and place - inside < 41:
            sign = text[place]
            if (
                sign == c"[" or sign == c"]" or sign == c"\n"
                or (not ascii and (sign == 0x3010 or sign == 0x3011))
            ):
                break
            place += 1
        if place >= size or place == inside or place - inside > 40:
            break
        sign = text[place]
        if not (sign == c"]" or (not ascii and sign == 0x3011)):
            break
        at = place + 1
    return at


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
