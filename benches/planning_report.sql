-- Statements inside the functions that ran often, those planned most often first.
CREATE VIEW hot_statements AS
SELECT s.plans, s.calls, regexp_replace(s.query, '\s+', ' ', 'g') AS query
  FROM pg_stat_statements AS s
  JOIN pg_database AS d ON d.oid = s.dbid
 WHERE NOT s.toplevel AND d.datname = current_database() AND s.calls >= 100;
SELECT plans, calls, left(query, 120) FROM hot_statements ORDER BY plans DESC, calls DESC;
