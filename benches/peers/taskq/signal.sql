\set counter :counter + 1
\set n :client_id * :calls + :counter
SELECT taskq.signal('event ' || :n, '{"by": "ann"}');
