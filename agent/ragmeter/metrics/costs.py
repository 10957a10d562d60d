"""The cost of a request, estimated from its tokens where the trace does not tell it.

Given and estimated costs are scores of two scorers: `builtin` for what the trace says, `estimate`
for what its tokens cost by list prices. A trace has at most one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from ragmeter.core.files import load_yaml
from ragmeter.core.score import ESTIMATE_SCORER, NoScore, Score, make_plain_score
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

COST = "cost_usd"

# What may stand behind the name of a model: a date, a version, a stage.
_VERSION = re.compile(
    r"(?:[-@:](?:\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{2}-\d{2}|\d{8}|\d{4}|\d{3}|latest|preview|exp"
    r"|v\d{1,2}(?::\d{1,2})?|\d{1,3}k)|:thinking)*\Z"
)
# and before it: of gateways, clouds and frameworks (`openai/`, `us.anthropic.`, `openai:`)
_PROVIDER = re.compile(
    r"^(?:.*/)?(?:(?:openai|anthropic|google|google-gla|google-vertex|google_genai|google_vertexai"
    r"|azure|azure_openai|azure-openai|bedrock|bedrock_converse|cohere|deepseek|xai|mistral|mistralai):)?(?:(?:us|us-gov|eu|apac|global|jp|au|ca|sa|me|af|in)\.)?(?:(?:anthropic|amazon|cohere|mistral|deepseek)\.)?"
)
# Servers on machines of one's own, and subscriptions, as gateways name them before a model: list
# prices are of others.
_SELF_SERVED = re.compile(
    r"(?:^|/)(?:ollama(?:_chat)?|vllm|hosted_vllm|lm_studio|lmstudio|llamafile|llamacpp|llama_cpp"
    r"|sglang|localai|xinference|infinity|oobabooga|docker_model_runner|github_copilot|copilot)[:/]"
)
_MAX_NAME = 200

_REPORTED = NoScore(Reason.REPORTED, applies=False)
_NOT_REPORTED = NoScore(Reason.NOT_REPORTED)
_NO_PRICE = NoScore(Reason.NO_PRICE)


class TokenPrices(NamedTuple):
    """Prices of a model in USD for a million tokens.

    Args:
        cached: The price of input from the provider's cache; None if it is that of other input.
    """

    input: float
    output: float
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices of models by the start of their name.

    Args:
        prices: The list prices.
        date: When these held.
        own: Those of the settings, which come first.
    """

    prices: Mapping[str, TokenPrices]
    date: str
    own: Mapping[str, TokenPrices] = field(default_factory=dict)

    def find(self, model: str) -> TokenPrices | None:
        """Return the prices of a model, None for one that is not known."""
        name = _plain(model[:_MAX_NAME])
        short = _PROVIDER.sub("", name)
        for prices in (self.own, {} if _SELF_SERVED.search(name) else self.prices):
            for known in (name, short):
                if known in prices:
                    return prices[known]
            fitting = [
                key for key in prices if short.startswith(key) and _VERSION.match(short[len(key) :])
            ]
            if fitting:
                return prices[max(fitting, key=len)]
        return None

    def with_own(self, prices: Mapping[str, tuple[float, float, float | None]]) -> PriceTable:
        """Return the table with prices of the settings."""
        own = {_plain(name): TokenPrices._make(price) for name, price in prices.items()}
        return PriceTable(self.prices, self.date, own)


@cache
def list_prices() -> PriceTable:
    """Return the bundled prices, which are read at the first call."""
    table: dict[str, Any] = load_yaml(__package__, "prices.yaml")
    prices = {
        _plain(name): TokenPrices(given[0], given[1], given[2] if len(given) > 2 else None)
        for name, given in table["prices"].items()
    }
    return PriceTable(prices, table["date"])


def _plain(model: str) -> str:
    """Return a name with one sign for versions: `gpt-4.1` and `gpt-4-1` are one model."""
    head, _, name = model.strip().lower().rpartition("/")
    return f"{head}/{re.sub(r'(?<=[0-9])[.](?=[0-9])', '-', name)}".lstrip("/")


def estimate_cost(trace: Trace, prices: PriceTable) -> float | NoScore:
    """Return what the tokens of a trace cost by list prices, or why that is not known."""
    usage = trace.usage
    if usage is not None and usage.cost_usd is not None:
        return _REPORTED
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return _NOT_REPORTED
    if not trace.model:
        return _NOT_REPORTED
    found = prices.find(trace.model)
    if found is None:
        return _NO_PRICE
    cached = 0
    if usage.cached_input_tokens and found.cached is not None:
        cached = min(usage.cached_input_tokens, usage.input_tokens)
    fresh = usage.input_tokens - cached
    cost = fresh * found.input + cached * (found.cached or 0) + usage.output_tokens * found.output
    return cost / 1e6


def score_estimate(trace: Trace, prices: PriceTable) -> Score:
    """Return the score of the estimated cost."""
    return make_plain_score(
        COST, trace.probability, estimate_cost(trace, prices), scorer=ESTIMATE_SCORER
    )
