-- Plans made by a new session on analyzed tables.
\o /dev/null
\set n 3
\i :explain
\o
\ir explain_on.sql
\set n 4
\i :explain
