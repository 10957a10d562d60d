"""Write the numbers, dates and times of an answer as its passages write them.

"$5.2M" and "$5,200,000", "FY23" and "fiscal year 2023", "2024-03-05" and "5 March 2024" are the
same: the answer is read in the passages' notation. A value that no passage has is written as one
word, so that no part of it is found by chance. Passages that have what an answer has as it is
written, as most do, are not looked into. The patterns are in the kernel, `native/notation.hpp`.
"""

from __future__ import annotations

from ragmeter.metrics import kernel

adopt_notation = kernel.adopt_notation
