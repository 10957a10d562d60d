"""llama.cpp's own HTTP server as a process: `python -m tests.judge.llama_server MODEL KEY CONTEXT`.

The wheel `xllamacpp` holds llama.cpp with its server ready built; this starts it on a free port of
loopback, prints its URL and waits to be ended. CONTEXT is the context of each of its four slots,
in tokens. Its log goes to standard error.
"""

from __future__ import annotations

import importlib
import sys
import threading

SLOTS = 4  # requests side by side


def main() -> None:
    model, key, context = sys.argv[1:]
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny-random"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
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
