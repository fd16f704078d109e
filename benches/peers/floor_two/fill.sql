INSERT INTO floor (payload) SELECT repeat('x', 100) FROM generate_series(1, :n);
