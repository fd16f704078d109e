-- It has no call for many: a statement that calls the one for one.
\set number :client_id
\if :begun = 0
SELECT array_fill(repeat('x', 100), ARRAY[:batch::integer]) AS bodies \gset
\set begun 1
\endif
SELECT pgq.insert_event('work' || :number::text, 'work', body) FROM unnest(:bodies::text[]) AS body;
