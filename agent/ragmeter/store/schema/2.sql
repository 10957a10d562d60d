-- Version 2 added the traces that a slow tier has drawn, and verdicts of judges.
CREATE TABLE drawn(
  id INTEGER PRIMARY KEY AUTOINCREMENT, tier TEXT NOT NULL, service TEXT NOT NULL,
  timestamp REAL NOT NULL, probability REAL NOT NULL, pairs TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX drawn_by_tier ON drawn(tier, id);
CREATE TABLE verdicts(
  key BLOB PRIMARY KEY, fingerprint TEXT NOT NULL, body BLOB NOT NULL, at REAL NOT NULL)
  WITHOUT ROWID;
CREATE INDEX verdicts_by_age ON verdicts(at);
