\if :begun = 0
SELECT array_fill(0, n) AS priorities, array_fill(:work::text, n) AS entrypoints, array_fill(:body::bytea, n) AS payloads, array_fill('0'::interval, n) AS delays, array_fill(NULL::text, n) AS keys, array_fill('{}'::jsonb, n) AS headers FROM (SELECT ARRAY[:batch::integer] AS n) AS n \gset
\set begun 1
\endif
<<enqueue $1=:priorities $2=:entrypoints $3=:payloads $4=:delays $5=:keys $6=:headers>>;
