\if :begun = 0
SELECT json_build_array(json_build_object('data', :json::json)) AS jobs \gset
\set begun 1
\endif
<<publish $1=:jobs>>;
