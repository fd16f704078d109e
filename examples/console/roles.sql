-- The roles of the console: what a user may is what the role may that the application names for that user.
CREATE ROLE queue_operator;
CREATE ROLE queue_monitor;
SELECT taskq.grant_operator('queue_operator');
SELECT taskq.grant_monitor('queue_monitor');
CREATE ROLE console LOGIN PASSWORD 'console' NOINHERIT;
GRANT queue_operator, queue_monitor TO console;
