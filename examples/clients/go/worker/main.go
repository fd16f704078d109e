// A worker for taskq in Go (pgx) with many tasks at once: one heartbeat for all of them, returns in batches that bring
// the next tasks along.
//
//	PGHOST=... PGDATABASE=... worker [ACTION,...] [TASKS]
//
// Two connections, however many tasks: one sleeps until there is work, the other extends, returns and takes the next.
// SIGTERM or SIGINT: it takes no more, lets the tasks in hand finish within the grace, and gives back what does not. A
// task that was cancelled or taken over is dropped as soon as a heartbeat hears of it.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var (
	lease = seconds("TASKQ_LEASE", 60) // how long a death of this process goes unnoticed
	grace = seconds("TASKQ_GRACE", 20) // to finish after SIGTERM; less than the supervisor grants
)

// handlers says what the worker can do: the action of a task, and the function that performs it. That must heed the context; its
// result is kept with the task.
var handlers = map[string]func(context.Context, task) (any, error){
	"checksum": checksum,
	"words":    words,
}

// rejected says why a task can never succeed: no further try makes sense.
type rejected string

func (reason rejected) Error() string { return string(reason) }

func checksum(ctx context.Context, t task) (any, error) {
	var body struct {
		Text    *string
		Seconds float64
		Fail    string
	}
	if err := read(t, &body); err != nil {
		return nil, err
	}
	if body.Text == nil {
		return nil, rejected("the body lacks a text")
	}
	if body.Fail != "" {
		return nil, errors.New(body.Fail) // anything else may work the next time
	}
	select {
	case <-time.After(time.Duration(body.Seconds * float64(time.Second))):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	head := []rune(*body.Text)
	if len(head) > 10 {
		head = head[:10]
	}
	sum := sha256.Sum256([]byte(*body.Text))
	return map[string]any{"sha256": fmt.Sprintf("%x", sum), "head": string(head), "client": "go"}, nil
}

func words(_ context.Context, t task) (any, error) {
	var body struct{ Text *string }
	if err := read(t, &body); err != nil {
		return nil, err
	}
	if body.Text == nil {
		return nil, rejected("the body lacks a text")
	}
	return map[string]any{"words": len(strings.Fields(*body.Text)), "client": "go"}, nil
}

// read turns the body of a task into what its handler wants.
func read(t task, body any) error {
	if err := json.Unmarshal([]byte(t.body), body); err != nil {
		return rejected("the body cannot be read: " + err.Error())
	}
	return nil
}

// A performance is a task in hand, until it is returned.
type performance struct {
	task
	interrupt context.CancelFunc
	lost      bool
	outcome   outcome // once it has ended
}

// work performs a task; how that ended is returned with what ends at the same time.
func work(ctx context.Context, t task) (end outcome) {
	defer func() {
		if fault := recover(); fault != nil {
			end = retry(fmt.Sprint("panic: ", fault))
		}
	}()
	log.Printf("%s: try %d", t.id, t.tries)
	result, err := handlers[t.action](ctx, t)
	var reason rejected
	switch {
	case ctx.Err() != nil && err != nil:
		return givenBack()
	case errors.As(err, &reason):
		return aborted(string(reason))
	case err != nil:
		return retry(err.Error())
	}
	text, err := json.Marshal(result)
	if err != nil {
		return aborted("its result is no JSON: " + err.Error())
	}
	return outcome{Code: "completed", Result: text}
}

// A pool has the tasks in hand; all of it belongs to the goroutine of main.
type pool struct {
	link     *link // extends and returns
	hand     map[*performance]bool
	ended    chan *performance
	stopping bool
}

func (p *pool) begin(t task) *performance {
	ctx, interrupt := context.WithCancel(context.Background())
	begun := &performance{task: t, interrupt: interrupt}
	p.hand[begun] = true
	go func() {
		begun.outcome = work(ctx, t)
		p.ended <- begun
	}()
	return begun
}

func (p *pool) interruptAll() {
	for held := range p.hand {
		held.interrupt()
	}
}

// extend moves the deadlines of all tasks in hand with one call.
func (p *pool) extend() {
	var held []*performance
	var tasks []task
	for one := range p.hand {
		if !one.lost {
			held, tasks = append(held, one), append(tasks, one.task)
		}
	}
	if len(held) == 0 {
		return
	}
	owned, err := p.link.extend(tasks)
	if err != nil {
		log.Printf("no heartbeat: %v", err)
		return
	}
	for n, one := range held {
		if !owned[n] {
			log.Printf("%s: lost", one.id)
			one.lost = true
			one.interrupt()
		}
	}
}

// giveBack returns whatever has ended with one call, which brings as many others in its place.
func (p *pool) giveBack(first *performance) error {
	ended := []*performance{first}
	for len(p.ended) > 0 {
		ended = append(ended, <-p.ended)
	}
	var returns []outcome
	for _, one := range ended {
		delete(p.hand, one)
		one.interrupt() // or its context is never released
		if !one.lost {
			one.outcome.TaskID, one.outcome.Token = one.id, one.token
			returns = append(returns, one.outcome)
		}
	}
	if len(returns) == 0 {
		return nil
	}
	more := len(returns)
	if p.stopping {
		more = 0
	}
	tasks, err := p.link.give(returns, more)
	for _, t := range tasks {
		p.begin(t)
	}
	return err
}

type grant struct {
	tasks []task
	err   error
}

func run(actions []string, most int) error {
	giveUp, end := context.WithCancel(context.Background())
	defer end()
	waiter, owning, granted := newLink(giveUp, actions), false, make(chan grant)
	p := &pool{link: newLink(giveUp, actions), hand: map[*performance]bool{}, ended: make(chan *performance, most)}
	stop := make(chan struct{})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		// Beside the loop, which may just be looking for a server.
		<-signals
		time.AfterFunc(grace+5*time.Second, end)
		close(stop)
		waiter.endWait()
	}()
	beats := time.NewTicker(lease / 3)
	var graceOver <-chan time.Time
	late := false
	for !p.stopping || owning || len(p.hand) > 0 {
		if room := most - len(p.hand); !p.stopping && !owning && room > 0 {
			owning = true
			go func() {
				tasks, err := waiter.own(room)
				granted <- grant{tasks, err}
			}()
		}
		select {
		case got := <-granted:
			owning = false
			if got.err != nil {
				return got.err
			}
			for _, t := range got.tasks {
				p.begin(t)
			}
			if late {
				p.interruptAll()
			}
		case first := <-p.ended:
			if err := p.giveBack(first); err != nil {
				return err
			}
		case <-beats.C:
			p.extend()
		case <-stop:
			p.stopping, stop = true, nil
			graceOver = time.After(grace)
		case <-graceOver:
			late = true
			p.interruptAll()
		}
	}
	log.Print("stopped")
	return nil
}

func seconds(name string, ifUnset float64) time.Duration {
	value, err := strconv.ParseFloat(os.Getenv(name), 64)
	if err != nil {
		value = ifUnset
	}
	return time.Duration(value * float64(time.Second))
}

func main() {
	var known []string
	for action := range handlers {
		known = append(known, action)
	}
	actions, most := known, 10
	if len(os.Args) > 1 {
		actions = strings.Split(os.Args[1], ",")
	}
	for _, action := range actions {
		if handlers[action] == nil {
			log.Printf("unknown action %q: there are handlers for %s", action, strings.Join(known, ", "))
			os.Exit(2)
		}
	}
	if len(os.Args) > 2 {
		most, _ = strconv.Atoi(os.Args[2])
	}
	if most < 1 {
		log.Fatal("usage: worker [ACTION,...] [TASKS]")
	}
	if err := run(actions, most); err != nil {
		log.Fatal(err)
	}
}
