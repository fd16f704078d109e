-- The thinnest table that can be a queue: no lease, no token, no graph, no record of what is done.
CREATE TABLE floor (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload text NOT NULL
);
INSERT INTO floor (payload) SELECT repeat('x', 100) FROM generate_series(1, 1500000);
