-- Version 4 added the spans of incomplete traces, the ids of closed traces, and traces that wait for
-- the texts of their passages. A row of spans is one trace's part of one request; `keys` are eight
-- bytes each.
CREATE TABLE open_spans(
  id INTEGER PRIMARY KEY AUTOINCREMENT, trace BLOB NOT NULL, arrived REAL NOT NULL,
  root INTEGER NOT NULL, size INTEGER NOT NULL, keys BLOB NOT NULL, body BLOB NOT NULL);
CREATE INDEX open_spans_by_trace ON open_spans(trace, id);
CREATE TABLE closed_traces(trace BLOB PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE held(
  id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp REAL NOT NULL, received REAL NOT NULL,
  body BLOB NOT NULL);
