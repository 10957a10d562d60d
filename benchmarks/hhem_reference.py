"""The eager PyTorch side of `benchmarks/hhem.py`, run by a Python that has torch and transformers.

    PYTHON benchmarks/hhem_reference.py MODEL_SAFETENSORS

Loads the checkpoint strictly into transformers' T5ForTokenClassification of HHEM's shape, on one
thread. Each line of stdin, a JSON list of ids, is then answered by a line: CPU seconds and logits.
It imports nothing of ours: that Python does not have our packages.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

__all__ = ["main"]


def main() -> None:
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    load_file = import_module("safetensors.torch").load_file
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    weights: dict[str, Any] = {
        key.removeprefix("t5."): value for key, value in load_file(sys.argv[1]).items()
    }
    weights["transformer.encoder.embed_tokens.weight"] = weights["transformer.shared.weight"]
    config = transformers.T5Config(
        vocab_size=32128,
        d_model=768,
        d_kv=64,
        d_ff=2048,
        num_layers=12,
        num_heads=12,
        relative_attention_num_buckets=32,
        relative_attention_max_distance=128,
        layer_norm_epsilon=1e-6,
        feed_forward_proj="gated-gelu",
        num_labels=2,
    )
    model = transformers.T5ForTokenClassification(config)
    model.load_state_dict(weights, strict=True)
    model.eval()
    print(json.dumps([torch.__version__, transformers.__version__]), flush=True)
    for line in sys.stdin:
        ids = torch.tensor([json.loads(line)])
        began = time.process_time()
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 0]
        seconds = time.process_time() - began
        print(json.dumps([seconds, logits.tolist()]), flush=True)


if __name__ == "__main__":
    main()
