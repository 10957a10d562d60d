-- The tables of the state file.

-- Traces that are accepted and not counted yet.
CREATE TABLE inbox(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, timestamp REAL NOT NULL, received REAL NOT NULL,
  body BLOB NOT NULL);
-- Hashed trace ids of two generations.
CREATE TABLE seen_0(key BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE seen_1(key BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE buckets(
  service TEXT, segment TEXT, width INTEGER, start INTEGER, data BLOB NOT NULL,
  PRIMARY KEY(service, segment, width, start)) WITHOUT ROWID;
CREATE TABLE counters(name TEXT, labels TEXT, value REAL NOT NULL,
  PRIMARY KEY(name, labels)) WITHOUT ROWID;
CREATE TABLE evidence(
  service TEXT, trace_id TEXT, timestamp REAL NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY(service, trace_id)) WITHOUT ROWID;
-- Notifications that are not delivered yet.
CREATE TABLE outbox(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, key TEXT NOT NULL,
  body TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE progress(source TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- Traces that a slow tier has drawn.
CREATE TABLE drawn(
  id INTEGER PRIMARY KEY AUTOINCREMENT, tier TEXT NOT NULL, service TEXT NOT NULL,
  timestamp REAL NOT NULL, probability REAL NOT NULL, pairs TEXT NOT NULL, body BLOB NOT NULL,
  stratum TEXT NOT NULL, cheap TEXT NOT NULL);
CREATE INDEX drawn_by_tier ON drawn(tier, id);
-- Verdicts of judges.
CREATE TABLE verdicts(
  key BLOB PRIMARY KEY, fingerprint TEXT NOT NULL, body BLOB NOT NULL, at REAL NOT NULL)
  WITHOUT ROWID;
CREATE INDEX verdicts_by_age ON verdicts(at);
-- Spans of incomplete traces: a row is one trace's part of one request; `keys` are eight bytes each.
CREATE TABLE open_spans(
  id INTEGER PRIMARY KEY AUTOINCREMENT, trace BLOB NOT NULL, arrived REAL NOT NULL,
  root INTEGER NOT NULL, size INTEGER NOT NULL, keys BLOB NOT NULL, body BLOB NOT NULL);
CREATE INDEX open_spans_by_trace ON open_spans(trace, id);
CREATE TABLE closed_traces(trace BLOB PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
-- Traces that wait for the texts of their passages.
CREATE TABLE held(
  id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp REAL NOT NULL, received REAL NOT NULL,
  body BLOB NOT NULL);
