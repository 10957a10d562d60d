"""Why a metric has no value for a trace."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a metric has no value for a trace.

    A reason is a label value of metrics and a text in the lines of `ragmeter score`;
    `docs/metrics.md` explains each. Metrics of the user's own may give others.
    """

    # What is missing in the trace, or not whole: the values of `Trace.missing`.
    ANSWER_TRUNCATED = "answer_truncated"
    PASSAGES_TRUNCATED = "passages_truncated"
    QUERY_TRUNCATED = "query_truncated"
    NO_ANSWER_CAPTURED = "no_answer_captured"
    NO_PASSAGES_CAPTURED = "no_passages_captured"
    NO_QUERY_CAPTURED = "no_query_captured"
    NOT_CAPTURED = "not_captured"
    CONTENT_HIDDEN = "content_hidden"
    PASSAGES_ID_ONLY = "passages_id_only"
    PROMPT_ONLY = "prompt_only"
    REDACTION_FAILED = "redaction_failed"
    RESOLVER_ERROR = "resolver_error"
    RESOLVER_TIMEOUT = "resolver_timeout"

    # How the request ended (`Trace.status`), or what its texts hold.
    ERROR = "error"
    TIMEOUT = "timeout"  # of the request; on Kafka of a judge or model, too
    EMPTY_ANSWER = "empty_answer"
    NO_ANSWER = "no_answer"
    NO_CITATIONS = "no_citations"
    CITATIONS_NOT_READ = "citations_not_read"
    NO_CLAIMS = "no_claims"
    NO_NUGGETS = "no_nuggets"
    NO_VITAL_NUGGETS = "no_vital_nuggets"
    NO_PASSAGES = "no_passages"
    NOTHING_RELEVANT = "nothing_relevant"
    TOO_FEW_PASSAGES = "too_few_passages"
    NO_QUERY = "no_query"
    NO_TEXT = "no_text"
    NOT_REPORTED = "not_reported"
    REPORTED = "reported"  # there is nothing to estimate
    NO_PRICE = "no_price"
    LANGUAGE = "language"

    # What the judge, a model or a scorer could not do.
    JUDGE_ERROR = "judge_error"
    JUDGE_TIMEOUT = "judge_timeout"
    JUDGE_REFUSED = "judge_refused"
    JUDGE_UNAVAILABLE = "judge_unavailable"
    UNPARSABLE = "unparsable"
    TOO_LONG = "too_long"
    BUDGET = "budget"
    MODEL_ERROR = "model_error"
    EMBEDDING_FAILED = "embedding_failed"
    NOT_CONFIGURED = "not_configured"
    INTERNAL_ERROR = "internal_error"
    BAD_VALUE = "bad_value"  # of a function of the user's own
    INVALID_VALUE = "invalid_value"  # in a file of scored traces
    OTHER = "other"

    # What comparisons and people have nothing to say on.
    FIRST_RUN = "first_run"
    NO_VERDICT = "no_verdict"
    NOT_LABELLED = "not_labelled"
    CANNOT_TELL = "cannot_tell"
    TOO_FEW_ANSWERS = "too_few_answers"
    NO_MEAN = "no_mean"

    # What the reference of a canary lacks, or asks for in vain.
    NO_REFERENCE = "no_reference"
    NO_REFERENCE_ANSWER = "no_reference_answer"
    NO_KEYWORDS = "no_keywords"
    NO_NUMBERS = "no_numbers"
    NO_LIST = "no_list"
    NO_FACTS = "no_facts"
    NO_CHECKS = "no_checks"
    NO_CALCULATION = "no_calculation"
    NO_STEPS = "no_steps"
    BAD_PATTERN = "bad_pattern"
    PATTERN_TIMEOUT = "pattern_timeout"
    NO_SUPPORTS = "no_supports"
    NO_ANCHOR = "no_anchor"
    NO_SCOPE = "no_scope"
    NO_CONFLICT = "no_conflict"
    NO_DATES = "no_dates"
    ANSWERABLE = "answerable"
    UNANSWERABLE = "unanswerable"
    JUDGED = "judged"
