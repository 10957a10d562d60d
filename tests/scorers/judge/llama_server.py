"""llama.cpp's own HTTP server:
`python -m tests.scorers.judge.llama_server MODEL NAME KEY CONTEXT PORT`.

The wheel `xllamacpp` holds llama.cpp with its server ready built; this starts it on loopback,
prints its URL and waits to be ended. NAME is the model's name in replies, CONTEXT the context of
each of its four slots in tokens, PORT 0 a free port. Its log goes to standard error.
"""

from __future__ import annotations

import importlib
import sys
import threading

SLOTS = 4  # requests side by side


def main() -> None:
    model, name, key, context, port = sys.argv[1:]
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = model
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.api_keys = [key]
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * int(context)
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    server = llama.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
