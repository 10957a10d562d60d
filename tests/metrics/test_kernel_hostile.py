"""The kernel on hostile texts, with the compiler's checks of memory and arithmetic."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hatch_build import compile_module

ROOT = Path(__file__).parents[2]
COMPILER = "g++"
# g++ takes three times as long to compile the checks by -O2: six minutes and more.
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"]
# Scores real and hostile texts by a kernel of its own, and prints its memory in MiB at the end.
PROGRAM = """
import importlib.util, random, resource, sys
spec = importlib.util.spec_from_file_location("ragmeter.metrics.kernel", sys.argv[1])
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
sys.modules["ragmeter.metrics.kernel"] = kernel
import ragmeter.metrics
ragmeter.metrics.kernel = kernel
from ragmeter.trace import Trace
from tests.golden.texts import NOISE, WORDS, bundled, text_scores

rng, rounds = random.Random(sys.argv[2]), int(sys.argv[3])
for _, trace in list(bundled())[:: 2500 // rounds]:
    text_scores(trace)
SIGNS = NOISE + "0123456789,.$[](){}<>|&;#x\\\\'\\"-\\n"
SIGNS += chr(0x1F600) + chr(0x10FFFF) + chr(0xD800)
REPEATED = ["[1]", "1,234", ",234", "<b>", "(1) ", "\\\\[", "a-\\n", "| 1 ", "^1^", "&#1;", "a"]
for _ in range(rounds):
    def text(most):
        if rng.random() < 0.3:
            return rng.choice(REPEATED) * (most // 3)
        if rng.random() < 0.5:
            return "".join(rng.choices(SIGNS, k=rng.randrange(most)))
        return rng.choice([" ", "", "\\n"]).join(rng.choices(WORDS, k=most // 6))
    text_scores(Trace.model_validate({
        "trace_id": "t", "service": "s", "timestamp": 0, "query": text(200), "answer": text(4_000),
        "passages": [{"id": str(n), "text": text(6_000)} for n in range(3)],
    }))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "rounds"),
    [(11, 30), pytest.param(12, 400, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_hostile_texts_break_no_rule_of_the_language(
    seed: int, rounds: int, tmp_path: Path
) -> None:
    if not shutil.which(COMPILER):
        pytest.skip("needs g++ and its sanitizers")
    library = subprocess.run(
        [COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(library).is_file():
        pytest.skip("g++ has no sanitizers here")
    module = compile_module(ROOT, tmp_path, [COMPILER], CHECKS)
    settings = {
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "agent", ROOT / "exporters"))),
        "PYTHONMALLOC": "malloc",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(module), str(seed), str(rounds)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=3500 if rounds > 100 else 560,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) < 1_500
