"""Metrics that labels give: of people, of tickets, of an annotation judge.

The taxonomy is that of pragmata (github.com/bertelsmannstift/pragmata, metrics taxonomy). Unlike
there, what has no value by nature is not applicable and no 0: the nDCG of passages that are all
off the topic, precision@k with fewer than k passages.
"""
