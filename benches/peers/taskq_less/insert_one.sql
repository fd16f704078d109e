SELECT taskq.insert_task(NULL, 'work', :body::text);
