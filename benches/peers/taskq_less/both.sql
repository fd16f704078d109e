-- One call that returns what the last one has granted, and grants anew.
\if :begun = 0
SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens FROM taskq.own_tasks('bench', :batch, '{work}') \gset
\set begun 1
\endif
SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens FROM taskq.return_and_own_tasks('bench', :ids::text[], :tokens::uuid[], :batch, '{work}') \gset
