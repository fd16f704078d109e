\if :begun = 0
SELECT array_fill(repeat('x', 100), ARRAY[:batch::integer]) AS bodies \gset
\set begun 1
\endif
INSERT INTO floor (payload) SELECT unnest(:bodies::text[]);
