"""Metrics of canaries: traces that carry a `reference`, which says what the right answer is.

Scorer `reference`. Sources are named with each formula; two in-house suites recur:

- zesty: github.com/ovsilya/zesty-assignment, `src/evaluation/evaluate.py`
- helloworld-ai: github.com/lritter14/helloworld-ai, `eval/EVAL.md` and `eval/scripts`
"""
