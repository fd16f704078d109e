\set number :client_id
SELECT pgq.insert_event('work' || :number::text, 'work', :body);
