\if :begun = 0
SELECT array_fill(:json::jsonb, ARRAY[:batch::integer]) AS messages \gset
\set begun 1
\endif
SELECT * FROM pgmq.send_batch('work', :messages::jsonb[]);
