// Regular expressions with the meaning that Python's `re` gives them, without the interpreter.
//
// A pattern of `re` is compiled to nodes that name what follows them, and matched by backtracking.
// Each branch knows by which characters it can begin, so most are passed over without a try. What
// the patterns of the kernel need is there, and nothing else: no conditions, no possessive
// repetitions, no groups within an atomic one, no flags within a pattern. Atomic groups that are
// written alike share their nodes.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

#include "text.hpp"

namespace ragmeter {

enum PatternFlag { IGNORE_CASE = 1, MULTI_LINE = 2, DOT_ALL = 4 };

enum SignClass : uint8_t { DIGITS = 1, NO_DIGITS = 2, WORDS = 4, NO_WORDS = 8, BLANKS = 16, NO_BLANKS = 32 };

// A set of characters; those of ASCII are looked up.
struct SignSet {
    uint64_t ascii[2] = {0, 0};
    std::vector<std::pair<char32_t, char32_t>> ranges;
    uint8_t classes = 0;
    bool negated = false, ignore_case = false;

    void add(char32_t low, char32_t high) { ranges.emplace_back(low, high); }

    bool operator==(const SignSet& other) const {
        return classes == other.classes && negated == other.negated && ignore_case == other.ignore_case &&
            ranges == other.ranges;
    }

    bool slow(char32_t sign) const {
        if (ignore_case) sign = lower_sign(sign);
        bool in = false;
        for (const auto& range : ranges)
            if (range.first <= sign && sign <= range.second) { in = true; break; }
        if (!in && classes) {
            in = (classes & DIGITS && is_decimal(sign)) ||
                (classes & NO_DIGITS && !is_decimal(sign)) ||
                (classes & WORDS && is_word(sign)) || (classes & NO_WORDS && !is_word(sign)) ||
                (classes & BLANKS && Py_UNICODE_ISSPACE(sign)) ||
                (classes & NO_BLANKS && !Py_UNICODE_ISSPACE(sign));
        }
        return in != negated;
    }

    bool holds(char32_t sign) const {
        return sign < 128 ? ascii[sign >> 6] >> (sign & 63) & 1 : slow(sign);
    }

    // Call it when all is added; then sets can be compared.
    void fold_case() {
        if (!ignore_case) return;
        std::vector<std::pair<char32_t, char32_t>> given;
        given.swap(ranges);
        for (const auto& range : given)
            for (char32_t sign = range.first; sign <= range.second; sign++) {
                char32_t low = lower_sign(sign);
                add(low, low);
                // what `re` takes for the same although lower case differs
                if (low == 'i') add(0x131, 0x131);
                if (low == 0x131) add('i', 'i');
                if (low == 's') add(0x17F, 0x17F);
                if (low == 0x17F) add('s', 's');
                if (low == 0xB5) add(0x3BC, 0x3BC);
            }
    }

    // Call it before `holds`.
    void fill_ascii() {
        for (char32_t sign = 0; sign < 128; sign++)
            if (slow(sign)) ascii[sign >> 6] |= 1ULL << (sign & 63);
    }
};

// By which characters a match can begin; `any` where it may be empty or is not known.
struct First {
    uint64_t ascii[2] = {0, 0};
    bool wide = false, any = false;

    void join(const First& other) {
        ascii[0] |= other.ascii[0];
        ascii[1] |= other.ascii[1];
        wide |= other.wide;
        any |= other.any;
    }
    bool operator==(const First& other) const {
        return ascii[0] == other.ascii[0] && ascii[1] == other.ascii[1] && wide == other.wide && any == other.any;
    }
    bool allows(char32_t sign) const {
        return any || (sign < 128 ? ascii[sign >> 6] >> (sign & 63) & 1 : wide);
    }
};

enum Op : uint8_t {
    SIGN, SET, ANY_SIGN, REPEAT_SIGN, SPLIT, LOOP, LOOP_TEST, SAVE, BACK, LOOK, ATOMIC, LINE_START, LINE_END,
    TEXT_START, TEXT_END, TEXT_LAST, BORDER, NO_BORDER, DONE
};

// A branch of a split, and by which characters it can begin.
struct Branch {
    int node;
    First first;
};

// What can stand behind the digits that a branch begins with, and behind these and a blank.
struct BehindDigits {
    First next, behind_blank;
};

// A branch that can begin with a character, and what can stand behind that.
struct Choice {
    int node, branch;
    First second;
};

struct Split {
    std::vector<Branch> branches;
    std::vector<BehindDigits> digits;  // by branch
    // Of many: the branches that can begin with each character of ASCII, with others, and at the end
    // of the text; those of one are chosen[from[it]] to chosen[from[it + 1]].
    std::vector<Choice> chosen;
    std::vector<int> from;
};

struct Node {  // as small as can be: a pattern has thousands, and a match looks at many of them
    Op op = DONE;
    bool lazy = false, negated = false, behind = false;
    int next = -1;
    int16_t set = -1;  // of SET and REPEAT_SIGN
    int16_t after = -1;  // by which characters goes on what follows a repetition
    char32_t sign = 0;
    int low = 0, high = 0;  // times; the width of a look behind
    int body = -1;  // of a loop, a look, an atomic group
    int number = 0;  // of a loop, a group, a split
};

struct Match {
    static constexpr int MOST = 148;
    Py_ssize_t places[2 * MOST];
    const void* clear_of = nullptr;  // the pattern that no group is set of
    Py_ssize_t start() const { return places[0]; }
    Py_ssize_t end() const { return places[1]; }
    bool has(int group) const { return places[2 * group + 1] >= 0 && places[2 * group] >= 0; }
    Py_ssize_t start(int group) const { return places[2 * group]; }
    Py_ssize_t end(int group) const { return places[2 * group + 1]; }
    Letters text(const Text& of, int group) const {
        return has(group) ? of.part(start(group), end(group)) : Letters();
    }
};

class Pattern {
    static constexpr int MOST_LOOPS = 24;
    static constexpr uint64_t DIGIT_SIGNS = 0x3FFULL << '0';  // in the first half of ASCII

  public:
    Pattern(const Letters& source, int flags) : source_(source), flags_(flags) {
        Node end;
        nodes_.push_back(end);
        std::unique_ptr<Tree> tree = alternatives();
        if (at_ != source_.size()) fail("unbalanced parenthesis");
        start_ = emit(*tree, 0);
        if (loops_ > MOST_LOOPS) fail("too many repeated groups");
        first_ = first(start_, 0);
        int count = 0;
        for (char32_t sign = 0; sign < 128; sign++) {
            begins_[sign] = first_.allows(sign);
            count += begins_[sign];
            if (begins_[sign]) only_ = (char)sign;
        }
        if (count != 1 || first_.wide) only_ = 0;
        const Node& begin = nodes_[start_];
        if (begin.op == LOOK && begin.behind && begin.negated && nodes_[begin.body].op == SET &&
            nodes_[begin.body].next == 0)
            guard_ = nodes_[begin.body].set;
        behind_guard_ = guard_ < 0 ? start_ : begin.next;
        for (Node& node : nodes_)
            if (node.op == REPEAT_SIGN || node.op == LOOP_TEST) node.after = add_after(first(node.next, 0));
        for (Split& split : splits_) {
            for (Branch& branch : split.branches) branch.first = first(branch.node, 0);
            if (split.branches.size() > 3) choose(split);
        }
    }
    explicit Pattern(const char* source, int flags = 0) : Pattern(letters(source), flags) {}

    // The number of a named group.
    int group(const char* name) const {
        auto found = names_.find(letters(name));
        if (found == names_.end()) throw std::runtime_error(std::string("no group ") + name);
        return found->second;
    }
    int groups() const { return groups_; }

    bool match(const Text& text, Py_ssize_t from, Match& out, Py_ssize_t end = -1) const {
        if (end < 0 || end > text.size) end = text.size;
        if (from > end) return false;
        if (text.kind == 1) return Run<uint8_t>(*this, text, end).match(from, out);
        if (text.kind == 2) return Run<uint16_t>(*this, text, end).match(from, out);
        return Run<uint32_t>(*this, text, end).match(from, out);
    }

    bool search(const Text& text, Py_ssize_t from, Match& out, Py_ssize_t end = -1) const {
        if (end < 0 || end > text.size) end = text.size;
        if (text.kind == 1) return Run<uint8_t>(*this, text, end).search(from, out);
        if (text.kind == 2) return Run<uint16_t>(*this, text, end).search(from, out);
        return Run<uint32_t>(*this, text, end).search(from, out);
    }

    bool search(const Text& text) const {
        Match found;
        return search(text, 0, found);
    }

  private:
    // -- what is read

    struct Tree {
        enum Kind { EMPTY, ONE, SEQUENCE, CHOICE, TIMES, GROUP, SAME, LOOK_AT, SHARED, PLACE } kind = EMPTY;
        std::vector<std::unique_ptr<Tree>> parts;
        int set = -1;
        char32_t sign = 0;
        bool any = false, lazy = false, negated = false, behind = false;
        long low = 0, high = 0;
        int number = 0;
        Op place = DONE;
    };
    typedef std::unique_ptr<Tree> Part;

    [[noreturn]] void fail(const char* why) const { throw std::runtime_error(why); }
    bool more() const { return at_ < source_.size(); }
    char32_t peek(size_t ahead = 0) const {
        return at_ + ahead < source_.size() ? source_[at_ + ahead] : 0;
    }
    bool take(const char* word) {
        Letters wanted = letters(word);
        if (source_.compare(at_, wanted.size(), wanted) != 0) return false;
        at_ += wanted.size();
        return true;
    }

    Part alternatives() {
        Part first_part = sequence();
        if (!more() || peek() != '|') return first_part;
        Part out(new Tree);
        out->kind = Tree::CHOICE;
        out->parts.push_back(std::move(first_part));
        while (more() && peek() == '|') {
            at_++;
            out->parts.push_back(sequence());
        }
        return out;
    }

    Part sequence() {
        Part out(new Tree);
        out->kind = Tree::SEQUENCE;
        while (more() && peek() != '|' && peek() != ')') {
            Part one = atom();
            out->parts.push_back(times(std::move(one)));
        }
        return out;
    }

    bool number(long& out) {
        size_t begin = at_;
        out = 0;
        while (peek() >= '0' && peek() <= '9') out = 10 * out + (long)(source_[at_++] - '0');
        return at_ > begin;
    }

    Part times(Part one) {
        if (!more()) return one;
        long low, high;
        size_t before = at_;
        const long most = 1L << 30;
        if (peek() == '*') { at_++; low = 0; high = most; }
        else if (peek() == '+') { at_++; low = 1; high = most; }
        else if (peek() == '?') { at_++; low = 0; high = 1; }
        else if (peek() == '{') {
            at_++;
            bool some = number(low);
            high = low;
            if (peek() == ',') {
                at_++;
                if (!number(high)) high = most;
                some = true;
            }
            if (!some || peek() != '}') { at_ = before; return one; }
            at_++;
        } else return one;
        Part out(new Tree);
        out->kind = Tree::TIMES;
        out->low = low;
        out->high = high;
        if (more() && peek() == '?') { at_++; out->lazy = true; }
        out->parts.push_back(std::move(one));
        return out;
    }

    Part place(Op op) {
        Part out(new Tree);
        out->kind = Tree::PLACE;
        out->place = op;
        return out;
    }

    Part one_set(SignSet& set) {
        set.ignore_case = flags_ & IGNORE_CASE;
        set.fold_case();
        Part out(new Tree);
        out->kind = Tree::ONE;
        size_t same = 0;  // most letters come many times
        while (same < sets_.size() && !(sets_[same] == set)) same++;
        if (same == sets_.size()) {
            set.fill_ascii();
            sets_.push_back(set);
        }
        if (sets_.size() > INT16_MAX) fail("too many sets");
        out->set = (int)same;
        return out;
    }

    Part literal(char32_t sign) {
        if (flags_ & IGNORE_CASE && (is_letter(sign))) {
            SignSet set;
            set.add(sign, sign);
            return one_set(set);
        }
        Part out(new Tree);
        out->kind = Tree::ONE;
        out->sign = sign;
        return out;
    }

    static uint8_t class_of(char32_t sign) {
        switch (sign) {
            case 'd': return DIGITS;
            case 'D': return NO_DIGITS;
            case 'w': return WORDS;
            case 'W': return NO_WORDS;
            case 's': return BLANKS;
            case 'S': return NO_BLANKS;
        }
        return 0;
    }

    char32_t escaped() {  // behind the backslash
        char32_t sign = source_[at_++];
        int digits = sign == 'x' ? 2 : sign == 'u' ? 4 : sign == 'U' ? 8 : 0;
        if (digits) {
            char32_t out = 0;
            for (; digits; digits--) {
                char32_t c = source_[at_++];
                out = 16 * out + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
            }
            return out;
        }
        return sign == 'n' ? '\n' : sign == 't' ? '\t' : sign == 'r' ? '\r' : sign == 'f' ? '\f' :
            sign == 'v' ? '\v' : sign;
    }

    Part atom() {
        char32_t sign = source_[at_++];
        if (sign == '(') return group_of();
        if (sign == '[') return set_of();
        if (sign == '^') return place(flags_ & MULTI_LINE ? LINE_START : TEXT_START);
        if (sign == '$') return place(flags_ & MULTI_LINE ? LINE_END : TEXT_LAST);
        if (sign == '.') {
            Part out(new Tree);
            out->kind = Tree::ONE;
            if (flags_ & DOT_ALL) { out->any = true; return out; }
            SignSet set;
            set.add('\n', '\n');
            set.negated = true;
            return one_set(set);
        }
        if (sign != '\\') return literal(sign);
        sign = peek();
        if (uint8_t kind = class_of(sign)) {
            at_++;
            SignSet set;
            set.classes = kind;
            return one_set(set);
        }
        if (sign == 'b') { at_++; return place(BORDER); }
        if (sign == 'B') { at_++; return place(NO_BORDER); }
        if (sign == 'A') { at_++; return place(TEXT_START); }
        if (sign == 'Z') { at_++; return place(TEXT_END); }
        if (sign >= '1' && sign <= '9') {
            at_++;
            Part out(new Tree);
            out->kind = Tree::SAME;
            out->number = (int)(sign - '0');
            return out;
        }
        return literal(escaped());
    }

    Part set_of() {
        SignSet set;
        if (peek() == '^') { at_++; set.negated = true; }
        bool first_sign = true;
        while (first_sign || peek() != ']') {
            if (!more()) fail("unterminated set");
            first_sign = false;
            char32_t low = source_[at_++];
            if (low == '\\') {
                if (uint8_t kind = class_of(peek())) { at_++; set.classes |= kind; continue; }
                low = escaped();
            }
            char32_t high = low;
            if (peek() == '-' && peek(1) != ']') {
                at_++;
                high = source_[at_++];
                if (high == '\\') high = escaped();
            }
            set.add(low, high);
        }
        at_++;
        return one_set(set);
    }

    Part group_of() {
        Part out(new Tree);
        if (take("?:")) {
            out = alternatives();
        } else if (take("?P=")) {
            size_t close = source_.find(U')', at_);
            out->kind = Tree::SAME;
            out->number = names_.at(source_.substr(at_, close - at_));
            at_ = close;
        } else if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
            out->kind = Tree::LOOK_AT;
            out->negated = source_[at_ - 1] == '!';
            out->behind = source_[at_ - 2] == '<';
            out->parts.push_back(alternatives());
            if (out->behind) out->low = width(*out->parts[0]);
        } else if (take("?>")) {
            out->kind = Tree::SHARED;
            out->number = (int)shared_of();
        } else {
            out->kind = Tree::GROUP;
            out->number = ++groups_;
            if (groups_ >= Match::MOST) fail("too many groups");
            if (take("?P<")) {
                size_t close = source_.find(U'>', at_);
                names_[source_.substr(at_, close - at_)] = groups_;
                at_ = close + 1;
            } else if (peek() == '?') fail("unknown group");
            out->parts.push_back(alternatives());
        }
        if (peek() != ')') fail("missing parenthesis");
        at_++;
        return out;
    }

    // The number of the atomic group that begins here, which is read once however often it is written.
    size_t shared_of() {
        size_t number = 0;
        for (; number < shared_.size(); number++) {
            const Letters& same = shared_[number].source;
            if (source_.compare(at_, same.size(), same) != 0 || source_[at_ + same.size()] != ')') continue;
            at_ += same.size();
            return number;
        }
        const size_t begin = at_;
        const int groups = groups_;
        Part body = alternatives();
        if (groups_ > groups) fail("a group within an atomic one");
        number = shared_.size();  // behind those within it
        shared_.push_back({source_.substr(begin, at_ - begin), emit(*body, 0)});
        return number;
    }

    long width(const Tree& tree) const {
        switch (tree.kind) {
            case Tree::EMPTY: case Tree::PLACE: case Tree::LOOK_AT: return 0;
            case Tree::ONE: return 1;
            case Tree::GROUP: return width(*tree.parts[0]);
            case Tree::SAME: case Tree::SHARED: fail("what has no width within a look behind");
            case Tree::TIMES:
                if (tree.low != tree.high) fail("a look behind needs a fixed width");
                return tree.low * width(*tree.parts[0]);
            case Tree::SEQUENCE: {
                long all = 0;
                for (const Part& part : tree.parts) all += width(*part);
                return all;
            }
            case Tree::CHOICE:
                for (const Part& part : tree.parts)
                    if (width(*part) != width(*tree.parts[0])) fail("a look behind needs a fixed width");
                return width(*tree.parts[0]);
        }
        return 0;
    }

    // -- the nodes

    void choose(Split& split) const {
        First any;
        any.any = true;
        for (const Branch& branch : split.branches) {
            bool digit = branch.first.any || branch.first.ascii[0] & DIGIT_SIGNS;
            split.digits.push_back(digit ? behind_digits(branch.node) : BehindDigits());
        }
        for (int sign = 0; sign < 130; sign++) {
            split.from.push_back((int)split.chosen.size());
            for (size_t at = 0; at < split.branches.size(); at++) {
                const Branch& branch = split.branches[at];
                if (sign < 129 ? branch.first.allows(sign) : branch.first.any)
                    split.chosen.push_back({branch.node, (int)at, sign < 128 ? second(branch.node, sign, 0) : any});
            }
        }
        split.from.push_back((int)split.chosen.size());
    }

    // What can stand behind the digits that a match from a node begins with, however many.
    BehindDigits behind_digits(int start) const {
        enum State { BEFORE, DIGITS_READ, BLANK_READ, STATES };
        BehindDigits out;
        std::vector<std::pair<int, int>> todo = {{start, BEFORE}};
        std::vector<char> seen(STATES * nodes_.size(), 0);
        while (!todo.empty()) {
            const auto [number, state] = todo.back();
            todo.pop_back();
            char& known = seen[STATES * number + state];
            if (known) continue;
            known = 1;
            const Node& node = nodes_[number];
            auto go_on = [&](int next, int then) { todo.emplace_back(next, then); };
            switch (node.op) {
                case SIGN: case SET: case REPEAT_SIGN: {
                    First signs = of_one(node);
                    if (state == DIGITS_READ) out.next.join(signs);
                    if (state == BLANK_READ) out.behind_blank.join(signs);
                    bool digit = signs.any || signs.ascii[0] & DIGIT_SIGNS, blank = signs.any || signs.allows(' ');
                    if (digit && state != BLANK_READ) go_on(node.next, DIGITS_READ);
                    if (blank && state == DIGITS_READ) go_on(node.next, BLANK_READ);
                    if (node.op != REPEAT_SIGN) break;
                    if (digit && state != BLANK_READ) go_on(number, DIGITS_READ);
                    if (blank && state == DIGITS_READ) go_on(number, BLANK_READ);
                    if (node.low == 0) go_on(node.next, state);
                    break;
                }
                case SPLIT:
                    for (const Branch& branch : splits_[node.number].branches) go_on(branch.node, state);
                    break;
                case LOOP_TEST:
                    go_on(node.body, state);
                    go_on(node.next, state);
                    break;
                case ATOMIC:
                    go_on(node.body, state);
                    break;
                case LOOP: case SAVE: case LOOK: case BORDER: case NO_BORDER: case LINE_START:
                case TEXT_START:
                    go_on(node.next, state);
                    break;
                default:  // the end, or what is not known
                    if (state != BLANK_READ) out.next.any = true;
                    out.behind_blank.any = true;
            }
        }
        return out;
    }

    int16_t add_after(const First& first) {
        auto same = std::find(afters_.begin(), afters_.end(), first);
        if (same == afters_.end()) same = afters_.insert(same, first);
        if (afters_.size() > INT16_MAX) fail("too many repetitions");
        return (int16_t)(same - afters_.begin());
    }

    int add(Node node) {
        nodes_.push_back(std::move(node));
        return (int)nodes_.size() - 1;
    }

    int add_split(Node node, std::vector<Branch> branches) {
        node.number = (int)splits_.size();
        splits_.emplace_back();
        splits_.back().branches.swap(branches);
        return add(node);
    }

    int emit(const Tree& tree, int next) {
        Node node;
        node.next = next;
        switch (tree.kind) {
            case Tree::EMPTY: return next;
            case Tree::ONE:
                node.op = tree.any ? ANY_SIGN : tree.set >= 0 ? SET : SIGN;
                node.set = (int16_t)tree.set;
                node.sign = tree.sign;
                return add(node);
            case Tree::SEQUENCE:
                for (size_t part = tree.parts.size(); part-- > 0;) next = emit(*tree.parts[part], next);
                return next;
            case Tree::CHOICE:
                node.op = SPLIT;
                return add_split(node, [&] {
                    std::vector<Branch> out;
                    for (const Part& part : tree.parts) out.push_back({emit(*part, next), First()});
                    return out;
                }());
            case Tree::GROUP: {
                node.op = SAVE;
                node.number = 2 * tree.number + 1;
                int close = add(node);
                node.next = emit(*tree.parts[0], close);
                node.number = 2 * tree.number;
                return add(node);
            }
            case Tree::SAME:
                node.op = BACK;
                node.number = tree.number;
                return add(node);
            case Tree::LOOK_AT:
                node.op = LOOK;
                node.negated = tree.negated;
                node.behind = tree.behind;
                node.low = tree.low;
                node.body = emit(*tree.parts[0], 0);
                return add(node);
            case Tree::SHARED:
                node.op = ATOMIC;
                node.body = shared_[tree.number].node;
                return add(node);
            case Tree::PLACE:
                node.op = tree.place;
                return add(node);
            case Tree::TIMES: break;
        }
        const Tree& one = *tree.parts[0];
        node.low = tree.low;
        node.high = tree.high;
        node.lazy = tree.lazy;
        if (one.kind == Tree::ONE) {
            node.op = REPEAT_SIGN;
            node.set = (int16_t)one.set;
            node.sign = one.sign;
            node.negated = one.any;
            return add(node);
        }
        if (tree.low == 0 && tree.high == 1) {
            node.op = SPLIT;
            int body = emit(one, next);
            Branch with{body, First()}, without{next, First()};
            if (tree.lazy) return add_split(node, {without, with});
            return add_split(node, {with, without});
        }
        if (tree.low == 1 && tree.high == 1) return emit(one, next);
        node.op = LOOP_TEST;
        node.number = loops_++;
        int test = add(node);
        int body = emit(one, test);
        nodes_[test].body = body;
        Node begin;
        begin.op = LOOP;
        begin.next = test;
        begin.number = nodes_[test].number;
        return add(begin);
    }

    // By which characters a match can go on that begins with a character of ASCII.
    First second(int number, char32_t sign, int depth) const {
        First out;
        const Node& node = nodes_[number];
        if (depth > 200) { out.any = true; return out; }
        switch (node.op) {
            case SIGN:
                return node.sign == sign ? first(node.next, depth + 1) : out;
            case SET:
                return sets_[node.set].holds(sign) ? first(node.next, depth + 1) : out;
            case REPEAT_SIGN:
                if (node.set >= 0 ? sets_[node.set].holds(sign) : node.negated || node.sign == sign) {
                    if (node.high > 1) out.join(of_one(node));
                    if (node.low < 2) out.join(first(node.next, depth + 1));
                }
                if (node.low == 0) out.join(second(node.next, sign, depth + 1));
                return out;
            case SPLIT:
                for (const Branch& branch : splits_[node.number].branches)
                    out.join(second(branch.node, sign, depth + 1));
                return out;
            case ATOMIC: return second(node.body, sign, depth + 1);
            case LOOP_TEST:
                out = second(node.body, sign, depth + 50);
                out.join(second(node.next, sign, depth + 1));
                return out;
            case LOOP: case SAVE: case LOOK: case BORDER: case NO_BORDER: case LINE_START:
            case TEXT_START:
                return second(node.next, sign, depth + 1);
            default:
                out.any = true;
                return out;
        }
    }

    // Which characters one that is matched alone or repeated can be.
    First of_one(const Node& node) const {
        First out;
        if (node.negated) {
            out.any = true;
        } else if (node.set >= 0) {
            out.ascii[0] = sets_[node.set].ascii[0];
            out.ascii[1] = sets_[node.set].ascii[1];
            out.wide = true;
        } else if (node.sign < 128) {
            out.ascii[node.sign >> 6] |= 1ULL << (node.sign & 63);
        } else {
            out.wide = true;
        }
        return out;
    }

    First first(int number, int depth) const {
        First out;
        const Node& node = nodes_[number];
        if (depth > 200) { out.any = true; return out; }
        switch (node.op) {
            case SIGN:
                if (node.sign < 128) out.ascii[node.sign >> 6] |= 1ULL << (node.sign & 63);
                else out.wide = true;
                return out;
            case SET:
                out.ascii[0] = sets_[node.set].ascii[0];
                out.ascii[1] = sets_[node.set].ascii[1];
                out.wide = true;
                return out;
            case REPEAT_SIGN:
                out = of_one(node);
                if (node.low == 0) out.join(first(node.next, depth + 1));
                return out;
            case SPLIT:
                for (const Branch& branch : splits_[node.number].branches)
                    out.join(first(branch.node, depth + 1));
                return out;
            case LOOP_TEST:  // maybe after as many rounds as there have to be
                out = first(node.body, depth + 50);
                out.join(first(node.next, depth + 1));
                return out;
            case ATOMIC: return first(node.body, depth + 1);
            case LOOP:
                if (nodes_[node.next].low > 0) return first(nodes_[node.next].body, depth + 1);
                return first(node.next, depth + 1);
            case SAVE: case LOOK: case BORDER: case NO_BORDER: case LINE_START:
            case TEXT_START:
                return first(node.next, depth + 1);
            default:
                out.any = true;
                return out;
        }
    }

    // -- a run

    template <class Sign>
    struct Run {
        struct Loop { long count; Py_ssize_t last; };
        const Pattern& pattern;
        const Node* nodes;
        const Sign* text;
        Py_ssize_t size, stopped = -1;
        Py_ssize_t* places = nullptr;
        Loop loops[MOST_LOOPS] = {};
        int depth = 0;

        Run(const Pattern& pattern, const Text& text, Py_ssize_t end)
            : pattern(pattern), nodes(pattern.nodes_.data()), text((const Sign*)text.data), size(end) {}

        // Forget all groups; a try that fails leaves them so.
        void clear(Match& out) {
            places = out.places;
            if (out.clear_of != &pattern) std::fill_n(places, 2 * (pattern.groups_ + 1), -1);
            out.clear_of = &pattern;
        }

        bool match(Py_ssize_t from, Match& out) {
            if (!allowed(pattern.first_, from)) return false;
            clear(out);
            return attempt(pattern.start_, from, out);
        }

        bool attempt(int node, Py_ssize_t from, Match& out) {
            if (!go(node, from)) return false;
            places[0] = from;
            places[1] = stopped;
            out.clear_of = nullptr;
            return true;
        }

        bool search(Py_ssize_t from, Match& out) {
            const bool any = pattern.first_.any;
            const SignSet* guard = pattern.guard_ < 0 ? nullptr : &pattern.sets_[pattern.guard_];
            clear(out);
            for (; from <= size; from++) {
                if (!any) {
                    from = next_begin(from);
                    if (from == size) return false;
                }
                if (guard && from > 0 && guard->holds(text[from - 1])) continue;
                if (attempt(pattern.behind_guard_, from, out)) return true;
            }
            return false;
        }

        // Where a match may begin, at a place or behind it, or the end.
        Py_ssize_t next_begin(Py_ssize_t at) const {
            if (sizeof(Sign) == 1 && pattern.only_) {
                const void* found = at < size ? memchr(text + at, pattern.only_, size - at) : nullptr;
                return found ? (const Sign*)found - text : size;
            }
            const bool* begins = pattern.begins_;
            const bool wide = pattern.first_.wide;
            while (at < size && !(text[at] < 128 ? begins[text[at]] : wide)) at++;
            return at;
        }

        bool allowed(const First& first, Py_ssize_t at) const {
            return first.any || (at < size && first.allows(text[at]));
        }

        Py_ssize_t behind_digits(Py_ssize_t at) const {
            while (at < size && text[at] >= '0' && text[at] <= '9') at++;
            return at;
        }

        // Whether a branch may match at a place, judged by what stands behind it; `behind` is the
        // place behind the digits there, -1 without any.
        bool fits(const Split& split, const Choice& choice, Py_ssize_t at, Py_ssize_t behind) const {
            if (!allowed(choice.second, at + 1)) return false;
            if (behind < 0) return true;
            const BehindDigits& digits = split.digits[choice.branch];
            if (!allowed(digits.next, behind)) return false;
            return behind >= size || text[behind] != ' ' || allowed(digits.behind_blank, behind + 1);
        }

        bool border(Py_ssize_t at) const {
            bool before = at > 0 && is_word(text[at - 1]), after = at < size && is_word(text[at]);
            return before != after;
        }

        bool one(const Node& node, Py_ssize_t at) const {
            if (node.set >= 0) return pattern.sets_[node.set].holds(text[at]);
            return node.negated || text[at] == node.sign;
        }

        bool go(int number, Py_ssize_t at) {
            if (++depth > MOST_DEEP) { depth--; return false; }
            bool found = step(number, at);
            depth--;
            return found;
        }

        bool step(int number, Py_ssize_t at) {
            for (;;) {
                const Node& node = nodes[number];
                switch (node.op) {
                    case SIGN:
                        if (at >= size || text[at] != node.sign) return false;
                        at++;
                        break;
                    case SET:
                        if (at >= size || !pattern.sets_[node.set].holds(text[at])) return false;
                        at++;
                        break;
                    case ANY_SIGN:
                        if (at >= size) return false;
                        at++;
                        break;
                    case REPEAT_SIGN: {
                        const First& after = pattern.afters_[node.after];
                        Py_ssize_t most = size - at < node.high ? size - at : node.high, count = 0;
                        if (node.lazy) {
                            while (count < node.low)
                                if (count >= most || !one(node, at + count++)) return false;
                            for (;; count++) {
                                if (allowed(after, at + count) && go(node.next, at + count)) return true;
                                if (count >= most || !one(node, at + count)) return false;
                            }
                        }
                        while (count < most && one(node, at + count)) count++;
                        if (count < node.low) return false;
                        for (; count > node.low; count--)
                            if (allowed(after, at + count) && go(node.next, at + count)) return true;
                        at += node.low;
                        break;
                    }
                    case SPLIT: {
                        const Split& split = pattern.splits_[node.number];
                        if (!split.from.empty()) {
                            int sign = at >= size ? 129 : text[at] < 128 ? (int)text[at] : 128;
                            const Choice* choice = split.chosen.data() + split.from[sign];
                            const Choice* end = split.chosen.data() + split.from[sign + 1];
                            Py_ssize_t behind = sign >= '0' && sign <= '9' ? behind_digits(at) : -1;
                            while (choice < end && !fits(split, end[-1], at, behind)) end--;
                            if (choice == end) return false;
                            for (; choice < end - 1; choice++)
                                if (fits(split, *choice, at, behind) && go(choice->node, at)) return true;
                            number = choice->node;
                            continue;
                        }
                        const Branch* branch = split.branches.data();
                        const Branch* last = branch + split.branches.size() - 1;
                        for (; branch < last; branch++)
                            if (allowed(branch->first, at) && go(branch->node, at)) return true;
                        if (!allowed(last->first, at)) return false;
                        number = last->node;
                        continue;
                    }
                    case LOOP: {
                        Loop before = loops[node.number];
                        loops[node.number] = Loop{0, -1};
                        if (go(node.next, at)) return true;
                        loops[node.number] = before;
                        return false;
                    }
                    case LOOP_TEST: {
                        Loop now = loops[node.number];
                        bool again = now.count < node.low || (now.count < node.high && at != now.last);
                        if (node.lazy && now.count >= node.low) {
                            if (allowed(pattern.afters_[node.after], at) && go(node.next, at)) return true;
                            if (!again) return false;
                            loops[node.number] = Loop{now.count + 1, at};
                            if (go(node.body, at)) return true;
                            loops[node.number] = now;
                            return false;
                        }
                        if (again) {
                            loops[node.number] = Loop{now.count + 1, at};
                            if (go(node.body, at)) return true;
                            loops[node.number] = now;
                        }
                        if (now.count < node.low) return false;
                        break;
                    }
                    case SAVE: {
                        Py_ssize_t before = places[node.number];
                        places[node.number] = at;
                        if (go(node.next, at)) return true;
                        places[node.number] = before;
                        return false;
                    }
                    case BACK: {
                        Py_ssize_t low = places[2 * node.number], high = places[2 * node.number + 1];
                        if (low < 0 || high < 0 || size - at < high - low) return false;
                        for (; low < high; low++, at++) {
                            Py_UCS4 one = text[low], other = text[at];
                            if (pattern.flags_ & IGNORE_CASE) {
                                one = lower_sign(one);
                                other = lower_sign(other);
                            }
                            if (one != other) return false;
                        }
                        break;
                    }
                    case LOOK: {
                        Py_ssize_t from = node.behind ? at - node.low : at;
                        Py_ssize_t before = stopped;
                        bool found = from >= 0 && go(node.body, from);
                        stopped = before;
                        if (found == node.negated) return false;
                        break;
                    }
                    case ATOMIC: {
                        const Py_ssize_t before = stopped;
                        const bool found = go(node.body, at);
                        const Py_ssize_t end = stopped;
                        stopped = before;
                        if (!found) return false;
                        at = end;
                        break;
                    }
                    case LINE_START:
                        if (at > 0 && text[at - 1] != '\n') return false;
                        break;
                    case LINE_END:
                        if (at < size && text[at] != '\n') return false;
                        break;
                    case TEXT_START:
                        if (at > 0) return false;
                        break;
                    case TEXT_END:
                        if (at < size) return false;
                        break;
                    case TEXT_LAST:
                        if (at < size && !(at == size - 1 && text[at] == '\n')) return false;
                        break;
                    case BORDER:
                        if (!border(at)) return false;
                        break;
                    case NO_BORDER:
                        if (border(at)) return false;
                        break;
                    case DONE:
                        stopped = at;
                        return true;
                }
                number = node.next;
            }
        }
    };

    // Calls: less than a megabyte of the thread's stack. Only a repetition of groups goes deep, by one
    // call a round; what repeats a group more often is no match.
    static constexpr int MOST_DEEP = 3'000;
    Letters source_;
    size_t at_ = 0;
    int flags_, groups_ = 0, loops_ = 0, start_ = 0;
    std::map<Letters, int> names_;
    std::vector<SignSet> sets_;
    std::vector<Node> nodes_;
    std::vector<Split> splits_;
    struct Shared { Letters source; int node; };
    std::vector<Shared> shared_;
    std::vector<First> afters_;
    First first_;
    bool begins_[128] = {};  // the characters of ASCII that a match can begin with
    char only_ = 0;  // that one where there is no other
    int guard_ = -1;  // the set of a character that may not stand before a match
    int behind_guard_ = 0;  // the node that follows it
};

}  // namespace ragmeter
