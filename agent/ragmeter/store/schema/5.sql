-- Version 5 added feedback, by the hash of its trace's id, and the remembered traces that it is
-- joined to.
CREATE TABLE feedback(
  id INTEGER PRIMARY KEY AUTOINCREMENT, trace BLOB NOT NULL, service TEXT, scorer TEXT NOT NULL,
  since REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE frames(
  id INTEGER PRIMARY KEY, trace BLOB NOT NULL, service TEXT NOT NULL, at REAL NOT NULL,
  body BLOB NOT NULL);
CREATE INDEX frames_by_trace ON frames(trace);
CREATE INDEX frames_by_time ON frames(at);
