\if :begun = 0
SELECT json_agg(json_build_object('data', :json::json)) AS jobs FROM generate_series(1, :batch) \gset
\set begun 1
\endif
<<insert $1=:jobs>>;
