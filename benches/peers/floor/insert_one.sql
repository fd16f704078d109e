INSERT INTO floor (payload) VALUES (:body);
