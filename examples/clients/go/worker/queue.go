package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

// wait is the time of one waiting call.
const wait = 10 * time.Second

type task struct {
	id, token, action, body string
	tries                   int
}

// An outcome is how a performance ended, as an element of what return_and_own_tasks takes.
type outcome struct {
	TaskID   string          `json:"task_id"`
	Token    string          `json:"token"`
	Code     string          `json:"status_code"`
	Status   string          `json:"status,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	CountTry *bool           `json:"count_try,omitempty"` // nil: it counts
}

func aborted(status string) outcome { return outcome{Code: "aborted", Status: printable(status)} }

// retry leaves to the queue when it is tried again: to the back-off of the task, of its action, or of all.
func retry(status string) outcome { return outcome{Code: "pending", Status: printable(status)} }

// givenBack uses up no try, and need not wait for the back-off: the task has not failed.
func givenBack() outcome {
	return outcome{Code: "pending", Status: "given back by a worker that stops", CountTry: new(bool)}
}

// A link is one connection, opened again as often as it takes.
type link struct {
	giveUp  context.Context // once it is done, nothing is tried again
	actor   string
	actions []string
	mutex   sync.Mutex // of conn, which endWait looks at
	conn    *pgx.Conn
	waiting bool
}

func newLink(giveUp context.Context, actions []string) *link {
	host, _ := os.Hostname()
	return &link{giveUp: giveUp, actor: fmt.Sprintf("%s:%d", host, os.Getpid()), actions: actions}
}

// own takes up to so many tasks. It sleeps in the server until there are some.
func (l *link) own(number int) ([]task, error) {
	l.setWaiting(true)
	defer l.setWaiting(false)
	tasks, err := call(l, scanTask,
		`SELECT task_id, token::text, action, coalesce(body, ''), num_tries
		   FROM taskq.own_tasks($1, $2, $3::text[], $4 * interval '1 second', wait => $5 * interval '1 second')`,
		l.actor, number, l.actions, lease.Seconds(), wait.Seconds())
	if code(err) == "57014" {
		return nil, nil // endWait has ended the wait; nothing was granted
	}
	return tasks, err
}

// extend moves the deadlines; of each task, in their order, whether it is still ours.
func (l *link) extend(tasks []task) ([]bool, error) {
	var ids, tokens []string
	for _, t := range tasks {
		ids, tokens = append(ids, t.id), append(tokens, t.token)
	}
	scan := func(rows pgx.Rows) (owned bool, err error) {
		err = rows.Scan(&owned)
		return owned, err
	}
	return call(l, scan,
		`SELECT owned FROM taskq.extend_tasks_ownership($1, $2::text[], $3::text[]::uuid[], $4 * interval '1 second')`,
		l.actor, ids, tokens, lease.Seconds())
}

// give returns tasks, and takes up to so many others, with one call; a bad token spoils only its own row.
func (l *link) give(returns []outcome, number int) ([]task, error) {
	list, err := json.Marshal(returns)
	if err != nil {
		return nil, err
	}
	type row struct {
		task
		sqlstate string
	}
	scan := func(rows pgx.Rows) (r row, err error) {
		err = rows.Scan(&r.id, &r.token, &r.action, &r.body, &r.tries, &r.sqlstate)
		return r, err
	}
	rows, err := call(l, scan,
		`SELECT task_id, coalesce(token::text, ''), coalesce(action, ''), coalesce(body, ''), coalesce(num_tries, 0),
		        coalesce(sqlstate, '')
		   FROM taskq.return_and_own_tasks($1, $2::jsonb, $3, $4::text[], $5 * interval '1 second')`,
		l.actor, string(list), number, l.actions, lease.Seconds())
	if strings.HasPrefix(code(err), "22") {
		return l.giveSingly(returns, number, err)
	}
	var tasks []task
	for _, r := range rows {
		if r.sqlstate == "" {
			tasks = append(tasks, r.task)
		} else {
			// TQ001, TQ003: cancelled, deleted, taken over, or returned by us and only the answer was lost.
			log.Printf("%s: dropped, it is not ours any more (%s)", r.id, r.sqlstate)
		}
	}
	return tasks, err
}

// giveSingly finds out which result the server cannot store, one with a \u0000 for example. The next try would have no
// other: the task is aborted.
func (l *link) giveSingly(returns []outcome, number int, refusal error) (tasks []task, err error) {
	if len(returns) == 1 {
		one := returns[0]
		if one.Result == nil {
			return nil, refusal
		}
		log.Printf("%s: its result cannot be stored: %v", one.TaskID, refusal)
		abort := aborted("its result cannot be stored: " + refusal.Error())
		abort.TaskID, abort.Token = one.TaskID, one.Token
		return l.give([]outcome{abort}, number)
	}
	for n, one := range returns {
		// Each takes one other, or none if we are to stop.
		more := 0
		if n < number {
			more = 1
		}
		others, err := l.give([]outcome{one}, more)
		tasks = append(tasks, others...)
		if err != nil {
			return tasks, err
		}
	}
	return tasks, nil
}

// call returns the rows of a query in a transaction of its own. A query may run twice if its answer gets lost.
func call[T any](l *link, scan func(pgx.Rows) (T, error), query string, arguments ...any) ([]T, error) {
	for delay := 100 * time.Millisecond; ; delay *= 2 {
		rows, err := attempt(l, scan, query, arguments)
		if err == nil || l.giveUp.Err() != nil || !l.lost(err) {
			return rows, err
		}
		if delay > 10*time.Second {
			delay = 10 * time.Second
		}
		log.Printf("no connection, again in about %v: %v", delay, err)
		select {
		case <-time.After(delay/2 + time.Duration(rand.Int63n(int64(delay)))):
		case <-l.giveUp.Done():
		}
	}
}

func attempt[T any](l *link, scan func(pgx.Rows) (T, error), query string, arguments []any) ([]T, error) {
	// A server that has vanished gives no answer: the end of this context closes the connection.
	ctx, cancel := context.WithTimeout(context.Background(), wait+30*time.Second)
	defer cancel()
	conn, err := l.connection(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// connection opens one where there is none. PGHOST and the like say where.
func (l *link) connection(ctx context.Context) (*pgx.Conn, error) {
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, nil
	}
	config, err := pgx.ParseConfig("application_name='taskq worker' connect_timeout=5")
	if err != nil {
		return nil, err
	}
	config.PreferSimpleProtocol = true // no prepared statements, so that PgBouncer may stand in between
	conn, err := pgx.ConnectConfig(ctx, config)
	l.setConn(conn)
	return conn, err
}

// What else than an answer has a SQLSTATE: the end of the connection, a server that starts or stops, too many connections,
// and a standby: since a failover, or not yet promoted. Another connection may find the primary.
var elsewhere = regexp.MustCompile("^(08|57P|53300|25006)")

// lost tells whether an error is the loss of the connection, not an answer, and sees to a new one then.
func (l *link) lost(err error) bool {
	if answer := code(err); answer != "" {
		if !elsewhere.MatchString(answer) {
			return false
		}
	} else if l.conn != nil && !l.conn.IsClosed() {
		return false // a mistake of ours
	}
	if l.conn != nil {
		_ = l.conn.Close(context.Background())
		l.setConn(nil)
	}
	return true
}

// endWait cancels the call that sleeps, now or just after this: it is granted nothing then, or the grant was committed
// before and is performed.
func (l *link) endWait() {
	for l.giveUp.Err() == nil {
		l.mutex.Lock()
		conn, waiting := l.conn, l.waiting
		l.mutex.Unlock()
		if waiting && conn != nil {
			ctx, cancel := context.WithTimeout(l.giveUp, 5*time.Second)
			_ = conn.PgConn().CancelRequest(ctx)
			cancel()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (l *link) setConn(conn *pgx.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.conn = conn
}

func (l *link) setWaiting(waiting bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.waiting = waiting
}

func scanTask(rows pgx.Rows) (t task, err error) {
	err = rows.Scan(&t.id, &t.token, &t.action, &t.body, &t.tries)
	return t, err
}

// code is the SQLSTATE of an error, if it is one of the server's.
func code(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}

// printable is what a text of PostgreSQL can hold.
func printable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "")
}
