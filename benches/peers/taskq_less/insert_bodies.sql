-- The call for many tasks that share all but their bodies.
\if :begun = 0
SELECT array_fill(repeat('x', 100), ARRAY[:batch::integer]) AS bodies \gset
\set begun 1
\endif
SELECT * FROM taskq.insert_many('work', :bodies);
