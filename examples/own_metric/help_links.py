"""A metric of our own: whether an answer links to the help centre."""

from ragmeter import NoScore, Trace, metric

SITE = "https://help.example.com/"


@metric(
    name="help_link",
    kind="ratio",
    meaning="share of answers that link to the help centre",
    formula="1 if the answer has an address of the help centre, else 0; of requests that succeeded",
    needs="answer text",
    source="our style guide, section 4",
    rules=[
        {
            "name": "HelpLinksRare",
            "severity": "warning",
            "statistic": "upper",
            "op": "<",
            "threshold": {"sensitive": 0.7, "balanced": 0.5, "quiet": 0.3},
            "window": "1h",
            "for": "10m",
            "min_samples": 50,
            "summary": "{service}: only {value} of the answers link to the help centre",
        }
    ],
)
def help_link(trace: Trace) -> float | NoScore:
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)  # no answer, so nothing to measure
    if trace.answer is None:
        return NoScore("no_text")  # there was one, and it was not captured: unscored, never 0
    return float(SITE in trace.answer)
