"""The status page: what is read (views), how numbers and charts look, how pages are put together.

Pure functions from views to HTML; no script, no style but one hashed block, nothing external.
"""
