\set counter :counter + 1
\set n :client_id * :calls + :counter
SELECT absurd.emit_event('work', 'event ' || :n, '{"by": "ann"}');
